// Builds KernelIR by hand, for tests.
#pragma once

#include <initializer_list>
#include <utility>

#include "codegen/kernel_ir.h"
#include "tests/support/kernel_reference.h"

namespace lazuli::testing {

// Methods return the index of the new buffer or instruction.
class KernelBuilder {
 public:
  using T = c10::ScalarType;
  using K = codegen::KOp;

  explicit KernelBuilder(c10::DimVector sizes, int num_reduced = 0) {
    kernel_.sizes = std::move(sizes);
    kernel_.num_reduced = num_reduced;
  }

  // Dense over the whole domain.
  int Buffer(T type, bool written = false) { return Buffer(type, DenseStrides(), written); }
  int Buffer(T type, c10::DimVector strides, bool written = false) {
    kernel_.buffers.push_back({type, std::move(strides), written});
    return static_cast<int>(kernel_.buffers.size()) - 1;
  }
  // What a scatter writes: offsets lead to so many elements from that at a point on.
  int Target(T type, c10::DimVector strides, int64_t within) {
    const int buffer = Buffer(type, std::move(strides), true);
    kernel_.buffers[buffer].within = within;
    return buffer;
  }
  // Dense over the kept dimensions.
  int KeptBuffer(T type, bool written = false) {
    c10::DimVector strides(kernel_.sizes.size(), 0);
    int64_t stride = 1;
    for (int d = static_cast<int>(kernel_.sizes.size()) - kernel_.num_reduced - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= kernel_.sizes[d];
    }
    return Buffer(type, strides, written);
  }

  int Load(int buffer) { return Add(K::kLoad, kernel_.buffers[buffer].dtype, {}, buffer); }
  int Store(int buffer, int value) { return Add(K::kStore, kernel_.buffers[buffer].dtype, {value}, buffer); }
  int Gather(int buffer, int offset) { return Add(K::kGather, kernel_.buffers[buffer].dtype, {offset}, buffer); }
  int Scatter(K op, int buffer, int value, int offset, int condition) {
    return Add(op, kernel_.buffers[buffer].dtype, {value, offset, condition}, buffer);
  }
  int Check(int buffer, int valid) { return Add(K::kCheck, T::Bool, {valid}, buffer); }
  // The buffer that checks write to.
  int Flag() { return Buffer(T::Bool, c10::DimVector(kernel_.sizes.size(), 0), true); }
  int Const(double value, T type = T::Float) {
    const bool floating = type == T::Float || type == T::Double;
    return Add(K::kConst, type, {}, floating ? static_cast<int64_t>(BitsOf(value)) : static_cast<int64_t>(value));
  }
  int Scalar(T type) { return Add(K::kScalar, type, {}, kernel_.num_scalars++); }
  int Index(int dim) { return Add(K::kIndex, T::Long, {}, dim); }
  // `op`: one of the scans.
  int Scan(K op, int value, bool from_end) { return Add(op, kernel_.insts[value].type, {value}, from_end ? codegen::kFromEnd : 0); }
  int Cast(int value, T type) { return Add(K::kCast, type, {value}); }
  // Comparisons and IsNan yield Bool, Bits Int; Select has its second operand's type; the rest their first operand's.
  int Op(K op, int a, int b = -1, int c = -1) {
    T type = kernel_.insts[op == K::kSelect ? b : a].type;
    if ((op >= K::kEq && op <= K::kGe) || op == K::kIsNan) type = T::Bool;
    if (op == K::kBits) type = T::Int;
    codegen::KInst inst;
    inst.op = op;
    inst.type = type;
    inst.in = {a, b, c};
    kernel_.insts.push_back(inst);
    return static_cast<int>(kernel_.insts.size()) - 1;
  }

  c10::DimVector DenseStrides() const {
    c10::DimVector strides(kernel_.sizes.size(), 1);
    for (int d = static_cast<int>(kernel_.sizes.size()) - 2; d >= 0; --d) strides[d] = strides[d + 1] * kernel_.sizes[d + 1];
    return strides;
  }

  const codegen::KernelIR& kernel() const { return kernel_; }

 private:
  int Add(K op, T type, std::initializer_list<int> in, int64_t imm = 0) {
    codegen::KInst inst;
    inst.op = op;
    inst.type = type;
    int k = 0;
    for (int operand : in) inst.in[k++] = operand;
    inst.imm = imm;
    kernel_.insts.push_back(inst);
    return static_cast<int>(kernel_.insts.size()) - 1;
  }

  codegen::KernelIR kernel_;
};

// Stores a + b at every point of the domain, each buffer with these strides.
inline codegen::KernelIR AddKernel(const c10::DimVector& sizes, const c10::DimVector& a, const c10::DimVector& b, const c10::DimVector& out,
                                   c10::ScalarType type) {
  KernelBuilder k(sizes);
  const int x = k.Load(k.Buffer(type, a)), y = k.Load(k.Buffer(type, b));
  k.Store(k.Buffer(type, out, true), k.Op(codegen::KOp::kAdd, x, y));
  return k.kernel();
}

}  // namespace lazuli::testing
