// The default dtype (torch::set_default_dtype) that operators were called under: what numbers are, and what integers become.
#pragma once

#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

namespace lazuli::runtime {

// While it lives, `dtype` is the default: that of when an operator was recorded, where the program has set another one since. For the
// process, as LibTorch has one for all threads.
class DefaultDtypeScope {
 public:
  explicit DefaultDtypeScope(c10::ScalarType dtype) : outer_(c10::get_default_dtype_as_scalartype()), differs_(dtype != outer_) {
    if (differs_) c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  }
  ~DefaultDtypeScope() {
    if (differs_) c10::set_default_dtype(c10::scalarTypeToTypeMeta(outer_));
  }
  DefaultDtypeScope(const DefaultDtypeScope&) = delete;
  DefaultDtypeScope& operator=(const DefaultDtypeScope&) = delete;

 private:
  const c10::ScalarType outer_;
  const bool differs_;
};

}  // namespace lazuli::runtime
