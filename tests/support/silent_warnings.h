// LibTorch's warnings are not written while one lives.
#pragma once

#include <c10/util/Exception.h>

namespace lazuli::testing {

class SilentWarnings {
 private:
  class Handler : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace lazuli::testing
