#include "runtime/counters.h"

#include <new>

#include "runtime/history.h"
#include "runtime/json.h"

namespace lazuli {
namespace {

void AppendJsonMap(const char* name, const std::map<std::string, int64_t>& map, std::string& json) {
  json += std::string("\"") + name + "\": {";
  const char* separator = "";
  for (const auto& [key, count] : map) {
    json += separator;
    runtime::AppendJsonString(key, &json);
    json += ": " + std::to_string(count);
    separator = ", ";
  }
  json += '}';
}

// Locale-independent, unlike printf's %f.
std::string SecondsText(double seconds) {
  const int64_t micros = static_cast<int64_t>(seconds * 1e6 + 0.5);
  std::string fraction = std::to_string(micros % 1000000);
  return std::to_string(micros / 1000000) + "." + std::string(6 - fraction.size(), '0') + fraction;
}

}  // namespace

std::string Stats::ToJson() const {
  std::string json = "{";
#define LAZULI_APPEND_COUNTER(name) json += "\"" #name "\": " + std::to_string(name) + ", ";
  LAZULI_COUNTERS(LAZULI_APPEND_COUNTER)
#undef LAZULI_APPEND_COUNTER
  json += "\"packed_weight_bytes\": " + std::to_string(packed_weight_bytes) + ", ";
  json += "\"compile_seconds\": " + SecondsText(compile_seconds) + ", ";
  json += "\"compile_wait_seconds\": " + SecondsText(compile_wait_seconds) + ", ";
  AppendJsonMap("eager_fallbacks", eager_fallbacks, json);
  json += ", ";
  AppendJsonMap("eager_uncut", eager_uncut, json);
  json += ", ";
  AppendJsonMap("cuts", cuts, json);
  return json + "}";
}

namespace runtime {

Counters& Counters::Get() {
  // Never destroyed, since threads of the program may still count while the process exits.
  alignas(Counters) static unsigned char memory[sizeof(Counters)];
  static Counters* const counters = new (memory) Counters;
  return *counters;
}

Counter& Counters::ByName(NameCounts* counts, std::string_view name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = counts->find(name);
  return it != counts->end() ? it->second : (*counts)[std::string(name)];
}

void Counters::CountEagerFallback(std::string_view op, int64_t amount, std::string_view why) {
  ByName(&eager_fallbacks_, op).Add(amount);
  History::Get().FellBack(op, why);
}

Counter& Counters::EagerUncut(std::string_view op) { return ByName(&eager_uncut_, op); }

void Counters::CountCut(std::string_view cause, int64_t amount) { ByName(&cuts_, cause).Add(amount); }

void Counters::CopyNames(const NameCounts& counts, std::map<std::string, int64_t>* values) {
  for (const auto& [name, counter] : counts) {
    if (counter.value() != 0) (*values)[name] = counter.value();
  }
}

void Counters::ResetNames(NameCounts* counts) {
  for (auto& [name, counter] : *counts) counter.Reset();
}

Stats Counters::Snapshot() const {
  Stats stats;
#define LAZULI_READ_COUNTER(name) stats.name = name.value();
  LAZULI_COUNTERS(LAZULI_READ_COUNTER)
#undef LAZULI_READ_COUNTER
  stats.packed_weight_bytes = packed_weight_bytes.value();
  stats.compile_seconds = static_cast<double>(compile_nanoseconds.value()) * 1e-9;
  stats.compile_wait_seconds = static_cast<double>(compile_wait_nanoseconds.value()) * 1e-9;
  std::lock_guard<std::mutex> lock(mutex_);
  CopyNames(eager_fallbacks_, &stats.eager_fallbacks);
  CopyNames(eager_uncut_, &stats.eager_uncut);
  CopyNames(cuts_, &stats.cuts);
  return stats;
}

void Counters::Reset() {
#define LAZULI_RESET_COUNTER(name) name.Reset();
  LAZULI_COUNTERS(LAZULI_RESET_COUNTER)
#undef LAZULI_RESET_COUNTER
  compile_nanoseconds.Reset();
  compile_wait_nanoseconds.Reset();
  std::lock_guard<std::mutex> lock(mutex_);
  ResetNames(&eager_fallbacks_);
  ResetNames(&eager_uncut_);
  ResetNames(&cuts_);
}

}  // namespace runtime
}  // namespace lazuli
