// What kernels read of a program's settings when they run, which for what is recorded is later than when the program called them.
#pragma once

#include <cstdint>
#include <string>

namespace lazuli::runtime {

// Determinism, the precision of float32 products and the libraries to be used (at::globalContext(), for the process), and how the thread's
// processor rounds and treats denormal numbers.
class KernelSettings {
 public:
  // Those of now, of this thread. Takes a few nanoseconds.
  static KernelSettings Current();
  void Apply() const;

  // A small number that stands for them in this process; 0 for those that came first. Throws past kMaxNumber.
  uint16_t number() const;
  // What of number `number` differs from number 0; empty for 0.
  static std::string TextOf(uint16_t number);
  static constexpr uint16_t kMaxNumber = (1 << 12) - 1;

  bool operator==(const KernelSettings& other) const { return bits_ == other.bits_; }
  bool operator!=(const KernelSettings& other) const { return bits_ != other.bits_; }

 private:
  uint64_t bits_ = 0;
};

// While it lives, `settings` hold: those of when an operator was recorded, where the program has changed them since.
class KernelSettingsScope {
 public:
  explicit KernelSettingsScope(KernelSettings settings) : outer_(KernelSettings::Current()), differs_(settings != outer_) {
    if (differs_) settings.Apply();
  }
  ~KernelSettingsScope() {
    if (differs_) outer_.Apply();
  }
  KernelSettingsScope(const KernelSettingsScope&) = delete;
  KernelSettingsScope& operator=(const KernelSettingsScope&) = delete;

 private:
  const KernelSettings outer_;
  const bool differs_;
};

}  // namespace lazuli::runtime
