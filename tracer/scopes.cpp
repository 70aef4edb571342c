#include "tracer/scopes.h"

#include <c10/util/Exception.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/caller_location.h"

namespace lazuli::tracer {
namespace {

// `cause` as for Recorder::Flush, in words.
std::string Explained(const std::string& cause) {
  if (cause == "sync") return "lazuli::sync() runs what is pending";
  if (cause == "data_ptr") return "the data of a pending tensor is accessed (data_ptr)";
  if (cause == "eager_scope") return "code that runs eagerly may overwrite what pending operators read (EagerScope, force_eager)";
  return absl::StrCat(cause, " cannot be recorded, and needs the data of pending tensors");
}

}  // namespace

void ThrowGraphBreak(std::string_view cause, size_t num_ops) {
  // The stack is looked at whatever LAZULI_STACKS says: nothing is fast on the way to an error.
  const std::string location = codegen::CallerLocation(codegen::CaptureStack());
  TORCH_CHECK(false, "lazuli: graph break in a full graph: ", Explained(std::string(cause)), location.empty() ? "" : ", at ", location,
              ".\nNothing has run, and nothing is lost: ", num_ops,
              " recorded operators stay pending. Read data after the FullGraph scope, or compute with tensors alone (torch::where instead "
              "of an if over item()); without a FullGraph scope and with LAZULI_FULLGRAPH=0 a graph break is no error, only slower.");
}

}  // namespace lazuli::tracer
