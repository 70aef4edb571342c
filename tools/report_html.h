// A report as one HTML page that needs nothing else: no network, and no script for what matters.
#pragma once

#include <string>
#include <string_view>

#include "tools/report_data.h"

namespace lazuli::tools {

// `title`: the log's name. All text from the log is escaped.
std::string ReportHtml(const ReportData& data, std::string_view title);

// `text` with what means something in HTML replaced; control characters become spaces.
std::string EscapeHtml(std::string_view text);

}  // namespace lazuli::tools
