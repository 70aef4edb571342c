// Small helpers around absl::Status.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr`, an absl::Status, is an error.
#define LAZULI_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    absl::Status lazuli_status_ = (expr);            \
    if (!lazuli_status_.ok()) return lazuli_status_; \
  } while (false)

// `LAZULI_ASSIGN_OR_RETURN(Graph graph, BuildGraph(trace));` Returns the error instead when there is one.
#define LAZULI_ASSIGN_OR_RETURN(lhs, expr) LAZULI_ASSIGN_OR_RETURN_IMPL_(LAZULI_CONCAT_(lazuli_or_, __LINE__), lhs, expr)
#define LAZULI_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return std::move(result).status();   \
  lhs = *std::move(result)
#define LAZULI_CONCAT_(a, b) LAZULI_CONCAT_IMPL_(a, b)
#define LAZULI_CONCAT_IMPL_(a, b) a##b

namespace lazuli::runtime {

// The same error with "context: " before its message; OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// The message of any exception: what() of a std::exception (without the backtrace that c10::Error appends), or "unknown exception".
std::string ExceptionMessage(const std::exception_ptr& error);

// An Internal error with that message.
absl::Status StatusFromException(const std::exception_ptr& error);

}  // namespace lazuli::runtime
