#include <algorithm>
#include <cctype>

#include "runtime/options.h"

namespace lazuli::runtime {

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    // One row of the Levenshtein matrix at a time.
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const bool same =
            std::tolower(static_cast<unsigned char>(name[i - 1])) == std::tolower(static_cast<unsigned char>(candidate[j - 1]));
        const size_t substituted = diagonal + (same ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
      }
    }
    const size_t distance = row.back();
    const bool near = distance <= std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    if (near && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace lazuli::runtime
