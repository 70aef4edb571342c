#include "runtime/status.h"

#include <c10/util/Exception.h>

#include "absl/strings/str_cat.h"

namespace lazuli::runtime {
namespace {

absl::string_view ToAbsl(std::string_view text) { return absl::string_view(text.data(), text.size()); }

}  // namespace

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(ToAbsl(context), ": ", status.message()));
}

std::string ExceptionMessage(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

absl::Status StatusFromException(const std::exception_ptr& error) { return absl::InternalError(ExceptionMessage(error)); }

}  // namespace lazuli::runtime
