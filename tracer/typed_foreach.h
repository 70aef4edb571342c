// Unboxed kernels of operators on lists of tensors (_foreach_add_): each element is recorded as the operator that LibTorch's composite
// kernel calls for it, without that kernel, a dispatch for each, and lists of boxed values. GPUs have kernels of their own for them, which
// compute the same but where OnGpu says otherwise; recorded in pieces they are fused again.
#pragma once

#include <ATen/Operators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tracer/above_autograd.h"
#include "tracer/captured_memory.h"
#include "tracer/dispatcher.h"
#include "tracer/lazy_tensor.h"
#include "tracer/typed_kernel.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {

// ---- Elements ---------------------------------------------------------------------------------------------------------------------------

inline const at::Tensor& Element(at::TensorList list, size_t i) { return list[i]; }
inline const at::Scalar& Element(at::ArrayRef<at::Scalar> list, size_t i) { return list[i]; }
template <class T>
const T& Element(const T& shared, size_t /*i*/) {
  return shared;
}

// Whether the elements can be recorded one by one: lists of one length, of dense tensors on one kind of device, with nothing (functorch,
// Python, a mode) between the program and the recorder. Autocast, which follows the pieces that CPUs make of such operators, sees nothing
// of those of a GPU's kernels.
class ListCheck {
 public:
  template <class... A>
  explicit ListCheck(bool writes, const A&... args) : writes_(writes) {
    passed_ = Recorder::Current() != nullptr && (Takes(args) && ...);
  }

  bool passed() const { return passed_; }
  // Of the lists.
  size_t size() const { return size_; }
  bool on_gpu() const { return device_ == c10::DeviceType::CUDA; }

  // `tensor` was written, which the kernel between autograd and the recorder would have counted: pieces are called past it.
  void CountWrite(const at::Tensor& tensor) const {
    c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    if (KeysOf(*impl).has(c10::DispatchKey::ADInplaceOrView)) impl->bump_version();
  }

 private:
  static constexpr c10::DispatchKeySet kPlainOnGpu = kPlainKeysOfCalls | c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA);

  c10::DispatchKeySet KeysOf(const c10::TensorImpl& impl) const { return (impl.key_set() | local_.included_) - local_.excluded_; }

  bool Takes(at::TensorList list) {
    if (!HasSize(list.size())) return false;
    for (const at::Tensor& tensor : list) {
      if (!TakesElement(tensor)) return false;
    }
    return true;
  }
  bool Takes(at::ArrayRef<at::Scalar> list) { return HasSize(list.size()); }
  // For all elements: a number.
  bool Takes(const at::Tensor& tensor) { return tensor.dim() == 0 && TakesElement(tensor); }
  bool TakesElement(const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const c10::DispatchKeySet keys = KeysOf(impl), plain = impl.device_type() == c10::kCUDA ? kPlainOnGpu : kPlainKeysOfCalls;
    if (!AreWithin(keys, plain) || !IsStridedWindow(impl)) return false;
    if (writes_ && tensor.is_inference() && keys.has(c10::DispatchKey::ADInplaceOrView)) return false;  // May not be written.
    if (!device_.has_value()) device_ = impl.device_type();
    return impl.device_type() == *device_ && !IsCaptured(impl.unsafe_storage().unsafeGetStorageImpl());
  }
  template <class T>
  bool Takes(const T& /*not a tensor*/) {
    return true;
  }
  bool HasSize(size_t size) {
    if (size_ == 0) size_ = size;
    return size == size_ && size != 0;
  }

  const c10::impl::LocalDispatchKeySet local_ = c10::impl::tls_local_dispatch_key_set();
  const bool writes_;
  size_t size_ = 0;
  std::optional<c10::DeviceType> device_;
  bool passed_ = false;
};

// ---- Pieces -----------------------------------------------------------------------------------------------------------------------------

// What calls of `Called` are recorded as: see typed_ops.def.
template <class Called>
struct RecordedAs {
  using Op = Called;
};
#define LAZULI_TYPED_OP(op)
#define LAZULI_TYPED_VIEW(op)
#define LAZULI_TYPED_EAGER(op)
#define LAZULI_SCALAR_TWIN(called, op)  \
  template <>                           \
  struct RecordedAs<at::_ops::called> { \
    using Op = at::_ops::op;            \
  };
#include "tracer/typed_ops.def"
#undef LAZULI_TYPED_OP
#undef LAZULI_TYPED_VIEW
#undef LAZULI_TYPED_EAGER
#undef LAZULI_SCALAR_TWIN

// Operator `Called` with `arguments`, of which the last may be missing: a factor, which is 1.
template <class Called, class Op = typename RecordedAs<Called>::Op, class Schema = typename Called::schema>
struct Piece;
template <class Called, class Op, class R, class... P>
struct Piece<Called, Op, R(P...)> {
  template <class... A>
  static R Record(c10::DispatchKeySet keys, const A&... arguments) {
    return Record(keys, std::tie(arguments...), std::index_sequence_for<P...>());
  }

 private:
  template <class Arguments, size_t... I>
  static R Record(c10::DispatchKeySet keys, const Arguments& arguments, std::index_sequence<I...>) {
    return TypedKernel<Op, R(P...), Called>::Call(keys, Argument<P, I>(arguments)...);
  }

  template <class Parameter, size_t I, class Arguments>
  static decltype(auto) Argument(const Arguments& arguments) {
    if constexpr (I >= std::tuple_size_v<Arguments>) {
      static_assert(I == std::tuple_size_v<Arguments> && std::is_same_v<Parameter, const at::Scalar&>);
      static const at::Scalar one(1);
      return (one);
    } else if constexpr (std::is_reference_v<Parameter>) {
      // Lists hold what is written as they hold what is read.
      return const_cast<Parameter>(std::get<I>(arguments));
    } else {
      return Parameter(std::get<I>(arguments));
    }
  }
};

// How a GPU's kernel of `Op`, the elements of which are those of `Called`, computes them.
template <class Op, class Called>
struct OnGpu {
  template <class... A>
  static bool DoesSo(const A&... /*arguments*/) {
    return false;
  }
  template <class... A>
  static decltype(auto) Record(c10::DispatchKeySet keys, const A&... element) {
    return Piece<Called>::Record(keys, element...);
  }
};

// ATen's divides many tensors by one number by multiplying by its inverse, as a double.
template <class Multiplied>
struct TimesInverse {
  static bool DoesSo(at::TensorList /*tensors*/, const at::Scalar& /*divisor*/) { return true; }
  static decltype(auto) Record(c10::DispatchKeySet keys, const at::Tensor& tensor, const at::Scalar& divisor) {
    const at::Scalar inverse = divisor.isComplex() ? at::Scalar(1. / divisor.toComplexDouble()) : at::Scalar(1. / divisor.toDouble());
    return Piece<Multiplied>::Record(keys, tensor, inverse);
  }
};
template <>
struct OnGpu<at::_ops::_foreach_div_Scalar, at::_ops::div_Scalar> : TimesInverse<at::_ops::mul_Scalar> {};
template <>
struct OnGpu<at::_ops::_foreach_div__Scalar, at::_ops::div__Scalar> : TimesInverse<at::_ops::mul__Scalar> {};

// By a list of numbers it divides, where the operator of one tensor multiplies by the number's inverse: recorded as div.Scalar, which
// nothing else is.
template <class Divided>
struct Quotients {
  static bool DoesSo(at::TensorList tensors, at::ArrayRef<at::Scalar> /*divisors*/) {
    for (const at::Tensor& tensor : tensors) {
      if (!at::isFloatingType(tensor.scalar_type()) || tensor.scalar_type() != tensors[0].scalar_type()) return false;
      if (!tensor.is_non_overlapping_and_dense()) return false;
    }
    return true;
  }
  static decltype(auto) Record(c10::DispatchKeySet keys, const at::Tensor& tensor, const at::Scalar& divisor) {
    return Piece<Divided, Divided>::Record(keys, tensor, divisor);
  }
};
template <>
struct OnGpu<at::_ops::_foreach_div_ScalarList, at::_ops::div_Scalar> : Quotients<at::_ops::div_Scalar> {};
template <>
struct OnGpu<at::_ops::_foreach_div__ScalarList, at::_ops::div__Scalar> : Quotients<at::_ops::div__Scalar> {};

// ---- The kernels ------------------------------------------------------------------------------------------------------------------------

// Records each element of calls of `Op` as `Called`.
template <class Op, class Called, class Schema = typename Op::schema>
struct ForeachKernel;
template <class Op, class Called, class R, class... A>
struct ForeachKernel<Op, Called, R(A...)> {
  static constexpr bool kInPlace = std::is_void_v<R>;

  static R Call(c10::DispatchKeySet keys, A... args) {
    const ListCheck check(kInPlace, args...);
    return check.passed() && !IsBeingCaptured(keys) ? Record(check, keys, args...) : Boxed(keys, args...);
  }

  // The kernel at the generic key (see AboveAutogradKernel).
  static R CallAboveAutograd(c10::DispatchKeySet keys, A... args) {
    if (AreWithin(keys, kPlainKeys) && !ConcernAutograd(args...) && !IsBeingCaptured(keys)) {
      const ListCheck check(kInPlace, args...);
      if (check.passed()) return Record(check, keys, args...);
    }
    return Op::redispatch(KeysBelowGeneric(keys), args...);
  }

 private:
  static R Record(const ListCheck& check, c10::DispatchKeySet keys, const A&... args) {
    if (check.on_gpu() && OnGpu<Op, Called>::DoesSo(args...)) {
      return Each(check, [&](size_t i) -> decltype(auto) { return OnGpu<Op, Called>::Record(keys, Element(args, i)...); });
    }
    return Each(check, [&](size_t i) -> decltype(auto) { return Piece<Called>::Record(keys, Element(args, i)...); });
  }

  template <class RecordOne>
  static R Each(const ListCheck& check, const RecordOne& record) {
    if constexpr (kInPlace) {
      for (size_t i = 0; i < check.size(); ++i) check.CountWrite(record(i));
    } else {
      R results;
      results.reserve(check.size());
      for (size_t i = 0; i < check.size(); ++i) results.push_back(record(i));
      return results;
    }
  }

  static R Boxed(c10::DispatchKeySet keys, const A&... args) {
    torch::jit::Stack stack = c10::impl::boxArgs<A...>(args...);
    BoxedPieces(InfoOf<Op>().handle, keys, &stack);
    if constexpr (!kInPlace) return std::move(stack[0]).to<R>();
  }
};

}  // namespace lazuli::tracer
