// From the text of an argument to its plan. An argument is written as its schema type wants it:
//
//   Tensor    KIND, KIND(SIZES) or KIND{ELEMENTS}; without sizes the case chooses them. N among the sizes is the batch size of the case.
//             t: of the case's dtype; p, u, z, o, s: the same with positive, unit, zero, one, sorted values; x: the same, infinities too;
//             spd, sym, low: positive definite, Hermitian, lower triangular matrices; r: the real dtype of a complex one;
//             f, d, l, c: float, double, long, complex float; P: positive in float; S: sorted in long; V: positive definite in float;
//             i5, j5, y5, e5, I5: indices below 5 in long, int, byte, char, the case's dtype; w: positive in long; q5: 0 to 4 in turn; b:
//             bool. A leading ! keeps contiguous memory.
//   lists     [A;B;C] of tensors, otherwise 1,2,3, with () for an empty list
//   numbers   2, 0.5, inf, true, 1+2j
//   dtypes    float, long, ...; any optional argument: none
//
// A|B|C are alternatives: of the case, or for numbers, of the case and the round.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/schema_case.h"

namespace lazuli::testing {

// The plan of the argument `arg` written as `text`. Throws std::invalid_argument where the text does not fit the type.
ArgPlan ParseArgument(const c10::Argument& arg, const std::string& text, const CasePoint& point);

// What an argument of this type and name is when no row says. Throws std::invalid_argument for types that have no values here.
std::string DefaultText(const c10::FunctionSchema& schema, const c10::Argument& arg, const CasePoint& point);

// True for overloads that name dimensions.
bool TakesNames(const c10::FunctionSchema& schema);

// `text` at every `separator` that is outside of brackets.
std::vector<std::string> Split(const std::string& text, char separator);

}  // namespace lazuli::testing
