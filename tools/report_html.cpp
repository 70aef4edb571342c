#include "tools/report_html.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/report_style.h"

namespace lazuli::tools {
namespace {

constexpr size_t kMaxRows = 15;
constexpr size_t kMaxVariants = 60;
constexpr int kBins = 480;
constexpr int kLeft = 76, kWidth = 960;  // Of a chart's plot.

std::string TimeText(double ns) {
  if (ns >= 100e9) return absl::StrFormat("%.0f s", ns / 1e9);
  if (ns >= 1e9) return absl::StrFormat("%.2f s", ns / 1e9);
  if (ns >= 1e6) return absl::StrFormat("%.1f ms", ns / 1e6);
  return absl::StrFormat("%.1f µs", ns / 1e3);
}

std::string BytesText(double bytes) {
  if (bytes >= 1 << 30) return absl::StrFormat("%.2f GB", bytes / (1 << 30));
  if (bytes >= 1 << 20) return absl::StrFormat("%.1f MB", bytes / (1 << 20));
  return absl::StrFormat("%.0f kB", bytes / 1024);
}

// "1,234,567".
std::string CountText(int64_t count) {
  std::string text = absl::StrCat(count);
  for (size_t at = text.size(), sign = count < 0 ? 1 : 0; at > 3 + sign; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string Cell(const std::string& text) { return absl::StrCat("<td>", text, "</td>"); }
std::string Code(const std::string& text) { return absl::StrCat("<code>", EscapeHtml(text), "</code>"); }
std::string NumberCell(int64_t value, const std::string& text) {
  return absl::StrCat("<td class=n data-v=\"", value, "\">", text, "</td>");
}
std::string CountCell(int64_t value) { return NumberCell(value, CountText(value)); }
std::string TimeCell(int64_t ns) { return NumberCell(ns, TimeText(static_cast<double>(ns))); }
std::string BarCell(double part, const char* kind) {
  return absl::StrFormat("<td style=\"width:150px\"><span class=\"bar %s\" style=\"width:%.1f%%\"></span></td>", kind, 100 * part);
}

// Heads that start with '#' stand over numbers.
std::string TableHead(const std::vector<std::string>& heads) {
  std::string html = "<table class=sortable><thead><tr>";
  for (const std::string& head : heads) {
    absl::StrAppend(&html, head[0] == '#' ? "<th class=n>" + head.substr(1) : "<th>" + head, "</th>");
  }
  return html + "</tr></thead><tbody>";
}

std::string Section(const std::string& id, const std::string& title, const std::string& body) {
  return absl::StrCat("<section id=\"", id, "\"><h2>", title, "</h2>", body, "</section>\n");
}

std::string Tile(const std::string& name, const std::string& value, const std::string& detail) {
  return absl::StrCat("<div class=tile><span>", name, "</span><b>", value, "</b><i>", detail, "</i></div>\n");
}

std::string Tiles(const ReportData& data) {
  const int64_t found = data.hits + data.misses;
  int64_t fallbacks = 0, limit_hits = 0, kernels = 0;
  for (const Fallback& fallback : data.fallbacks) fallbacks += fallback.count;
  for (const auto& [id, site] : data.sites) limit_hits += site.limit_hits;
  for (const auto& [serial, trace] : data.traces) kernels += trace.kernels;
  const double rate = found == 0 ? 0 : 100.0 * static_cast<double>(data.hits) / static_cast<double>(found);
  const double predicted = found == 0 ? 0 : 100.0 * static_cast<double>(data.predicted) / static_cast<double>(found);
  std::string html = "<div class=tiles id=tiles>\n";
  html += Tile("Traces", CountText(data.runs), CountText(data.ops) + " operators");
  html += Tile("Hit rate", absl::StrFormat("%.1f %%", rate), absl::StrFormat("%.1f %% predicted", predicted));
  html += Tile("Compiles", CountText(data.compiles), "of them recompiles: " + CountText(data.recompiles));
  html += Tile("Compiling", TimeText(static_cast<double>(data.compile_ns)),
               absl::StrFormat("%.1f %% of the time",
                               100.0 * static_cast<double>(data.compile_ns) / static_cast<double>(std::max<int64_t>(data.end, 1))));
  html += Tile("Running", TimeText(static_cast<double>(data.run_ns)), CountText(kernels) + " kernels");
  html += Tile("Recording", TimeText(static_cast<double>(data.record_ns)),
               data.ops == 0 ? ""
                             : TimeText(static_cast<double>(data.record_ns) / static_cast<double>(data.ops)) +
                                   " an operator, with the program's own work");
  html += Tile("Fallbacks", CountText(fallbacks), "cut and run eagerly");
  if (limit_hits > 0) html += Tile("Past the limit", CountText(limit_hits), "traces that ran eagerly");
  if (!data.memory.empty() && data.memory.back().peak > 0)
    html += Tile("Memory, peak", BytesText(static_cast<double>(data.memory.back().peak)), "in the pool");
  return html + "</div>\n";
}

// The part of each bin of [from, to) that `spans` keep busy.
std::vector<double> Busy(const std::vector<Span>& spans, double from, double to) {
  std::vector<double> bins(kBins, 0);
  const double width = (to - from) / kBins;
  for (const Span& span : spans) {
    const auto begin = static_cast<double>(span.begin), end = std::max(static_cast<double>(span.end), begin + 1);
    const double density = static_cast<double>(span.ns) / (end - begin);
    const int first = std::max(0, static_cast<int>((begin - from) / width));
    for (int b = first; b < kBins && from + b * width < end; ++b) {
      const double overlap = std::min(end, from + (b + 1) * width) - std::max(begin, from + b * width);
      if (overlap > 0) bins[static_cast<size_t>(b)] += density * overlap / width;
    }
  }
  return bins;
}

// A distance between grid lines that gives four to ten of them.
double GridStep(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 4)));
  for (const double factor : {5.0, 2.0}) {
    if (range / (power * factor) >= 4) return power * factor;
  }
  return power;
}

std::string TimeGrid(double from, double to, int height) {
  std::string svg;
  const double step = GridStep(to - from);
  for (double t = std::ceil(from / step) * step; t <= to; t += step) {
    const double x = kLeft + (t - from) / (to - from) * kWidth;
    absl::StrAppendFormat(&svg, "<line class=grid x1=%.1f x2=%.1f y1=0 y2=%d /><text x=%.1f y=%d text-anchor=middle>%s</text>", x, x,
                          height, x, height + 16, t == 0 ? "0" : TimeText(t));
  }
  return svg;
}

std::string Lane(const char* name, const char* kind, const std::vector<Span>& spans, double from, double to, int top, int height) {
  std::string svg = absl::StrFormat("<text x=%d y=%d text-anchor=end>%s</text><path class=%s d=\"M%d %d", kLeft - 10, top + height - 4,
                                    name, kind, kLeft, top + height);
  const auto bins = Busy(spans, from, to);
  for (int b = 0; b < kBins; ++b) {
    // What is there at all is seen.
    const double part = std::min(1.0, bins[static_cast<size_t>(b)]);
    const double y = top + height - (part <= 0 ? 0 : std::max(1.0, part * height));
    absl::StrAppendFormat(&svg, "L%.1f %.1fL%.1f %.1f", kLeft + b * static_cast<double>(kWidth) / kBins, y,
                          kLeft + (b + 1) * static_cast<double>(kWidth) / kBins, y);
  }
  absl::StrAppendFormat(&svg, "L%d %dZ\"><title>%s</title></path>", kLeft + kWidth, top + height, name);
  return svg;
}

std::string TimelineSvg(const ReportData& data, double from, double to) {
  constexpr int kLane = 46, kGap = 12;
  std::string svg =
      absl::StrFormat("<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"timeline\">", kLeft + kWidth + 30, 3 * (kLane + kGap) + 22);
  svg += TimeGrid(from, to, 3 * (kLane + kGap));
  svg += Lane("record", "record", data.recording, from, to, 4, kLane);
  svg += Lane("compile", "compile", data.compiling, from, to, 4 + kLane + kGap, kLane);
  svg += Lane("run", "run", data.running, from, to, 4 + 2 * (kLane + kGap), kLane);
  return svg + "</svg>";
}

std::string Timeline(const ReportData& data) {
  const auto end = static_cast<double>(std::max<int64_t>(data.end, 1));
  std::string html = "<p class=key>How busy each was; the full height of a lane is all of the time.</p>" + TimelineSvg(data, 0, end);
  int64_t last_compile = 0;
  for (const Span& span : data.compiling) last_compile = std::max(last_compile, span.end);
  const double warm = 1.2 * static_cast<double>(last_compile);
  if (warm > 0 && warm < 0.5 * end)
    html += "<p class=key style=\"margin-top:14px\">The beginning, until all was compiled:</p>" + TimelineSvg(data, 0, warm);
  return Section("timeline", "Timeline", html);
}

std::string VariantRow(const TraceData& trace) {
  std::string why = trace.why.empty() ? "the first here" : Code(trace.why);
  if (!trace.failure.empty()) why += "<br><span class=warn>could not be compiled: " + Code(trace.failure) + "</span>";
  return absl::StrCat(
      "<tr>", NumberCell(trace.serial, absl::StrCat("#", trace.serial)), CountCell(trace.ops), TimeCell(trace.compile_ns),
      NumberCell(trace.kernels_compiled, absl::StrCat(trace.kernels_compiled, " new, ", trace.kernel_cache_hits, " cached")),
      CountCell(trace.runs), TimeCell(trace.run_ns), Cell(why), "</tr>");
}

std::string Sites(const ReportData& data) {
  std::string html;
  for (const auto& [id, site] : data.sites) {
    absl::StrAppend(&html, "<div class=site><h3>Site ", id, ": after ", Code(site.cause), ", starts with ", Code(site.first_ops));
    if (site.limit_hits > 0)
      absl::StrAppend(&html, "<span class=badge>", EscapeHtml(site.limit), " hit, ", site.limit_hits, " traces ran eagerly</span>");
    absl::StrAppend(&html, "</h3>",
                    TableHead({"#trace", "#operators", "#compiled in", "#kernels", "#runs", "#time running", "why it was compiled"}));
    for (size_t i = 0; i < std::min(kMaxVariants, site.traces.size()); ++i) html += VariantRow(data.traces.at(site.traces[i]));
    html += "</tbody></table>";
    if (site.traces.size() > kMaxVariants) absl::StrAppend(&html, "<p class=key>and ", site.traces.size() - kMaxVariants, " more</p>");
    html += "</div>";
  }
  return Section("sites", "Sites, and why each program was compiled", html.empty() ? "Nothing was compiled." : html);
}

// The traces with the largest `ns`, as rows with bars.
std::string Slowest(const ReportData& data, int64_t TraceData::*ns, const char* kind, const std::vector<std::string>& heads) {
  std::vector<const TraceData*> traces;
  for (const auto& [serial, trace] : data.traces) {
    if (trace.*ns > 0) traces.push_back(&trace);
  }
  std::stable_sort(traces.begin(), traces.end(), [&](const TraceData* a, const TraceData* b) { return a->*ns > b->*ns; });
  std::string html = TableHead(heads);
  for (size_t i = 0; i < std::min(kMaxRows, traces.size()); ++i) {
    const TraceData& trace = *traces[i];
    const std::string name = trace.serial < 0 ? "without a program" : absl::StrCat("#", trace.serial, ", site ", trace.site);
    absl::StrAppend(&html, "<tr>", Cell(name), TimeCell(trace.*ns),
                    BarCell(static_cast<double>(trace.*ns) / static_cast<double>(traces[0]->*ns), kind));
    if (ns == &TraceData::run_ns) {
      const int64_t runs = std::max<int64_t>(trace.runs, 1);
      absl::StrAppend(&html, CountCell(trace.runs), TimeCell(trace.run_ns / runs), TimeCell(trace.min_ns), TimeCell(trace.max_ns),
                      CountCell(trace.kernels / runs), CountCell(trace.aten_calls / runs));
    } else {
      absl::StrAppend(&html, CountCell(trace.ops), CountCell(trace.kernels_compiled), CountCell(trace.kernel_cache_hits));
    }
    html += "</tr>";
  }
  return html + "</tbody></table>";
}

std::string Passes(const ReportData& data) {
  std::vector<std::pair<std::string, int64_t>> passes(data.passes.begin(), data.passes.end());
  std::sort(passes.begin(), passes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string html = TableHead({"pass", "#time", "part of compiling"});
  for (const auto& [name, ns] : passes) {
    absl::StrAppend(&html, "<tr>", Cell(Code(name)), TimeCell(ns),
                    BarCell(static_cast<double>(ns) / static_cast<double>(std::max<int64_t>(data.compile_ns, 1)), "c"), "</tr>");
  }
  return html + "</tbody></table>";
}

std::string Fallbacks(const ReportData& data) {
  std::string html = TableHead({"operator", "why", "#times"});
  for (const Fallback& fallback : data.fallbacks) {
    absl::StrAppend(&html, "<tr>", Cell(Code(fallback.op)), Cell(EscapeHtml(fallback.why)), CountCell(fallback.count), "</tr>");
  }
  html += "</tbody></table>";
  std::vector<std::pair<std::string, int64_t>> cuts(data.cuts.begin(), data.cuts.end());
  std::sort(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string cut_rows = TableHead({"cut by", "#times"});
  for (const auto& [cause, count] : cuts) absl::StrAppend(&cut_rows, "<tr>", Cell(Code(cause)), CountCell(count), "</tr>");
  return Section("fallbacks", "Cut and run eagerly", data.fallbacks.empty() ? "Nothing." : html) +
         Section("cuts", "What ended traces", cut_rows + "</tbody></table>");
}

std::string Memory(const ReportData& data) {
  if (data.memory.empty() || data.memory.back().peak == 0) return "";
  constexpr int kHeight = 110;
  int64_t top = 1;
  for (const MemorySample& sample : data.memory) top = std::max({top, sample.peak, sample.used + sample.idle});
  const auto x_of = [&](int64_t t) {
    return kLeft + static_cast<double>(t) / static_cast<double>(std::max<int64_t>(data.end, 1)) * kWidth;
  };
  const auto y_of = [&](int64_t bytes) { return 8 + kHeight * (1 - static_cast<double>(bytes) / static_cast<double>(top)); };
  const auto area = [&](const char* kind, auto bytes_of) {
    std::string path = absl::StrFormat("<path class=%s d=\"M%d %d", kind, kLeft, kHeight + 8);
    double y = kHeight + 8;
    for (const MemorySample& sample : data.memory) {
      absl::StrAppendFormat(&path, "L%.1f %.1f", x_of(sample.t), y);
      y = y_of(bytes_of(sample));
      absl::StrAppendFormat(&path, "L%.1f %.1f", x_of(sample.t), y);
    }
    return path + absl::StrFormat("L%d %.1fL%d %dZ\"/>", kLeft + kWidth, y, kLeft + kWidth, kHeight + 8);
  };
  std::string svg = absl::StrFormat("<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"memory\">", kLeft + kWidth + 30, kHeight + 32);
  svg += TimeGrid(0, static_cast<double>(std::max<int64_t>(data.end, 1)), kHeight + 8);
  svg += area("idle", [](const MemorySample& sample) { return sample.used + sample.idle; });
  svg += area("used", [](const MemorySample& sample) { return sample.used; });
  absl::StrAppendFormat(&svg, "<text x=%d y=%d text-anchor=end>%s</text><text x=%d y=%d text-anchor=end>0</text></svg>", kLeft - 10, 18,
                        BytesText(static_cast<double>(top)), kLeft - 10, kHeight + 8);
  return Section("memory", "Memory of the pool",
                 "<p class=key><i style=\"background:var(--record)\"></i>used after a run<i style=\"background:var(--idle)\"></i>kept for "
                 "the next one</p>" +
                     svg);
}

std::string Notes(const ReportData& data) {
  std::string html;
  for (const std::string& note : data.mismatches) absl::StrAppend(&html, "<p class=warn>Verification: ", EscapeHtml(note), "</p>");
  for (const std::string& note : data.stepped_aside) absl::StrAppend(&html, "<p>Stepped aside: ", EscapeHtml(note), "</p>");
  return html.empty() ? "" : Section("notes", "Also", html);
}

std::string Heading(const ReportData& data, std::string_view title) {
  std::string html = absl::StrCat("<h1>Lazuli report</h1>\n<p class=sub>", Code(std::string(title)), ": process ", data.pid, ", ",
                                  TimeText(static_cast<double>(data.end)), ", ", CountText(data.lines), " lines");
  if (data.skipped_lines > 0) absl::StrAppend(&html, "; <span class=warn>", data.skipped_lines, " unreadable lines skipped</span>");
  if (data.unknown_events > 0) absl::StrAppend(&html, "; ", data.unknown_events, " unknown events skipped");
  if (!data.ended) html += "; <span class=warn>the process did not end in order, or has not ended</span>";
  return html + "</p>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return html;
}

std::string ReportHtml(const ReportData& data, std::string_view title) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\">\n<title>Lazuli: ",
      EscapeHtml(title), "</title>\n<style>", kReportStyle, "</style></head>\n<body><main>\n");
  html += Heading(data, title) + Tiles(data) + Timeline(data) + Sites(data);
  html += Section(
      "slowest", "Programs by time running",
      Slowest(data, &TraceData::run_ns, "",
              {"program", "#in all", "&nbsp;", "#runs", "#mean", "#shortest", "#longest", "#kernels a run", "#library calls a run"}));
  html += Section(
      "compiles", "Programs by time compiling",
      Slowest(data, &TraceData::compile_ns, "c", {"program", "#time", "&nbsp;", "#operators", "#kernels compiled", "#from the cache"}));
  html += Section("passes", "Compilation by pass", Passes(data));
  html += Fallbacks(data) + Memory(data) + Notes(data);
  return html + "</main>\n<script>" + kReportScript + "</script></body></html>\n";
}

}  // namespace lazuli::tools
