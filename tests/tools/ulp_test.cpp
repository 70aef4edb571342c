// lazuli-ulp from the command line.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/support/log_file.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

std::string RunTool(const std::string& arguments, int* status) {
  const LogFile output;
  const std::string command = std::string(LAZULI_BIN_DIR) + "/lazuli-ulp " + arguments + " > " + output.path() + " 2>&1";
  *status = WEXITSTATUS(std::system(command.c_str()));
  return output.text();
}

TEST(UlpCommandTest, MeasuresTheFunctionsAskedFor) {
  int status = -1;
  const std::string output = RunTool("--step=100003 exp tanh", &status);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, ::testing::AllOf(HasSubstr("exp "), HasSubstr("tanh "), HasSubstr(" of 42949 floats\n")));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("log")));
}

TEST(UlpCommandTest, SaysWhatIsWrong) {
  int status = -1;
  EXPECT_THAT(RunTool("--step=100003 frobnicate", &status), HasSubstr("unknown function frobnicate"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunTool("--step=no", &status), HasSubstr("--step must be a number of at least 1"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(RunTool("--frobnicate", &status), HasSubstr("unknown option --frobnicate"));
  EXPECT_EQ(status, 2);
}

}  // namespace
}  // namespace lazuli::testing
