// Shape functions of what moves over places of an image: pooling, padding, sampling, shuffling.
#include <c10/util/irange.h>

#include <algorithm>

#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

// A batch of images, or one: [batch?, channels, places...] in contiguous memory, nothing empty.
bool IsImage(const at::Tensor& tensor, int64_t spatial) {
  return IsPlainFloat(tensor) && (tensor.dim() == spatial + 1 || tensor.dim() == spatial + 2);
}

// The sizes of `tensor` but for its last ones, which are `places`.
std::vector<int64_t> WithPlaces(const at::Tensor& tensor, at::IntArrayRef places) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  std::copy(places.begin(), places.end(), sizes.end() - static_cast<int64_t>(places.size()));
  return sizes;
}

// One number for each of `spatial` dimensions, of a list of as many or of one; `fallback` stands for an empty list. Empty where it fits
// not, or one is below `least`.
std::vector<int64_t> Every(const c10::IValue& value, size_t spatial, int64_t least, const std::vector<int64_t>& fallback = {}) {
  std::vector<int64_t> numbers = IntsArg(value);
  if (numbers.empty()) numbers = fallback;
  if (numbers.size() == 1) numbers.resize(spatial, numbers[0]);
  const bool fits = numbers.size() == spatial && *std::min_element(numbers.begin(), numbers.end()) >= least;
  return fits ? numbers : std::vector<int64_t>();
}

// IsImage, or channels last where that is a format of images: the format.
std::optional<at::MemoryFormat> ImageFormat(const at::Tensor& tensor, int64_t spatial) {
  if (IsImage(tensor, spatial)) return at::MemoryFormat::Contiguous;
  const bool is_batch = HaveOneFloatDtype({tensor}) && tensor.dim() == spatial + 2 && tensor.numel() != 0;
  return is_batch ? FormatOf(tensor) : std::nullopt;
}

// (grad, self), of adaptive average pooling.
Shapes AdaptivePoolBackwardShape(Args args, int64_t spatial) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const auto format = ImageFormat(self, spatial);
  if (!format.has_value() || !HaveOneFloatDtype({grad, self}) || grad.dim() != self.dim() || grad.numel() == 0) return {};
  if (!grad.sizes().slice(0, self.dim() - spatial).equals(self.sizes().slice(0, self.dim() - spatial))) return {};
  return {Fresh(self.sizes(), self.scalar_type(), *format)};
}

// (self, output_size)
Shapes AdaptivePoolShape(Args args, size_t spatial) {
  const at::Tensor self = TensorArg(args[0]);
  const std::vector<int64_t> output = Every(args[1], spatial, 1);
  const auto format = ImageFormat(self, static_cast<int64_t>(spatial));
  if (!format.has_value() || output.empty() || IntsArg(args[1]).size() != spatial) return {};
  return {Fresh(WithPlaces(self, output), self.scalar_type(), *format)};
}

Shapes AdaptivePool2dShape(Args args) { return AdaptivePoolShape(args, 2); }
Shapes AdaptivePool2dBackwardShape(Args args) { return AdaptivePoolBackwardShape(args, 2); }
Shapes AdaptivePool3dShape(Args args) { return AdaptivePoolShape(args, 3); }
Shapes AdaptivePool3dBackwardShape(Args args) { return AdaptivePoolBackwardShape(args, 3); }

// What max pooling of `self` makes, from (kernel, stride, padding, dilation, ceil_mode); empty where it is refused.
std::vector<int64_t> PooledSizes(const at::Tensor& self, Args args, size_t spatial) {
  const std::vector<int64_t> kernel = Every(args[0], spatial, 1), stride = Every(args[1], spatial, 1, kernel);
  const std::vector<int64_t> padding = Every(args[2], spatial, 0), dilation = Every(args[3], spatial, 1);
  if (kernel.empty() || stride.empty() || padding.empty() || dilation.empty()) return {};
  std::vector<int64_t> places;
  for (const auto d : c10::irange(spatial)) {
    const int64_t in = self.size(self.dim() - static_cast<int64_t>(spatial - d));
    const int64_t room = in + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1 + (args[4].toBool() ? stride[d] - 1 : 0);
    if (padding[d] > kernel[d] / 2 || room < 0) return {};
    int64_t out = room / stride[d] + 1;
    // The last window starts inside of the image or its left padding.
    if (args[4].toBool() && (out - 1) * stride[d] >= in + padding[d]) --out;
    if (out < 1) return {};
    places.push_back(out);
  }
  return WithPlaces(self, places);
}

// (self, kernel, stride, padding, dilation, ceil_mode): maxima and their places.
Shapes MaxPool3dShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsImage(self, 3)) return {};
  const std::vector<int64_t> sizes = PooledSizes(self, args.slice(1), 3);
  if (sizes.empty()) return {};
  return {Fresh(sizes, self.scalar_type()), Fresh(sizes, at::kLong)};
}

// (grad, self, kernel, stride, padding, dilation, ceil_mode, indices)
Shapes MaxPool3dBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor indices = TensorArg(args[7]);
  if (!IsImage(self, 3) || !HaveOneFloatDtype({grad, self}) || indices.scalar_type() != at::kLong) return {};
  const std::vector<int64_t> sizes = PooledSizes(self, args.slice(2), 3);
  if (!grad.sizes().equals(sizes) || !indices.sizes().equals(sizes)) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (grad, self, kernel, output_size, indices)
Shapes FractionalPool3dBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const at::Tensor indices = TensorArg(args[4]);
  const std::vector<int64_t> places = Every(args[3], 3, 1);
  if (!IsImage(self, 3) || !HaveOneFloatDtype({grad, self}) || indices.scalar_type() != at::kLong || places.empty()) return {};
  const std::vector<int64_t> sizes = WithPlaces(self, places);
  if (!grad.sizes().equals(sizes) || !indices.sizes().equals(sizes)) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

// (self, indices, output_size, ...)
Shapes MaxUnpoolShape(Args args, size_t spatial) {
  const at::Tensor self = TensorArg(args[0]);
  const at::Tensor indices = TensorArg(args[1]);
  const std::vector<int64_t> output = Every(args[2], spatial, 1);
  if (!IsImage(self, static_cast<int64_t>(spatial)) || indices.scalar_type() != at::kLong || !indices.sizes().equals(self.sizes()))
    return {};
  if (output.empty() || IntsArg(args[2]).size() != spatial) return {};
  return {Fresh(WithPlaces(self, output), self.scalar_type())};
}

Shapes MaxUnpool2dShape(Args args) { return MaxUnpoolShape(args, 2); }

// (..., stride, padding)
Shapes MaxUnpool3dShape(Args args) {
  if (IntsArg(args[3]).size() != 3 || IntsArg(args[4]).size() != 3 || Every(args[3], 3, 1).empty()) return {};
  return MaxUnpoolShape(args, 3);
}

// What padding makes of `self`'s last dimensions: pairs of numbers, of the last one first. Empty where it is refused.
std::vector<int64_t> PaddedSizes(const at::Tensor& self, const std::vector<int64_t>& padding, bool reflects) {
  const size_t spatial = padding.size() / 2;
  std::vector<int64_t> sizes = self.sizes().vec();
  for (const auto i : c10::irange(spatial)) {
    const int64_t before = padding[2 * i], after = padding[2 * i + 1];
    int64_t& size = sizes[sizes.size() - 1 - i];
    if (before < 0 || after < 0 || (reflects && (before >= size || after >= size))) return {};
    size += before + after;
  }
  return sizes;
}

// (self, padding)
Shapes PadShape(Args args, size_t spatial, bool reflects) {
  const at::Tensor self = TensorArg(args[0]);
  const std::vector<int64_t> padding = IntsArg(args[1]);
  if (!IsImage(self, static_cast<int64_t>(spatial)) || padding.size() != 2 * spatial) return {};
  const std::vector<int64_t> sizes = PaddedSizes(self, padding, reflects);
  if (sizes.empty()) return {};
  return {Fresh(sizes, self.scalar_type())};
}

Shapes ReflectionPad1dShape(Args args) { return PadShape(args, 1, /*reflects=*/true); }
Shapes ReflectionPad2dShape(Args args) { return PadShape(args, 2, /*reflects=*/true); }
Shapes ReflectionPad3dShape(Args args) { return PadShape(args, 3, /*reflects=*/true); }
Shapes ReplicationPad1dShape(Args args) { return PadShape(args, 1, /*reflects=*/false); }
Shapes ReplicationPad2dShape(Args args) { return PadShape(args, 2, /*reflects=*/false); }
Shapes ReplicationPad3dShape(Args args) { return PadShape(args, 3, /*reflects=*/false); }

// (grad, self, padding)
Shapes PadBackwardShape(Args args, size_t spatial, bool reflects) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor self = TensorArg(args[1]);
  const std::vector<int64_t> padding = IntsArg(args[2]);
  if (!IsImage(self, static_cast<int64_t>(spatial)) || !HaveOneFloatDtype({grad, self}) || padding.size() != 2 * spatial) return {};
  if (!grad.sizes().equals(PaddedSizes(self, padding, reflects))) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

Shapes ReflectionPad2dBackwardShape(Args args) { return PadBackwardShape(args, 2, /*reflects=*/true); }
Shapes ReplicationPad2dBackwardShape(Args args) { return PadBackwardShape(args, 2, /*reflects=*/false); }
Shapes ReplicationPad3dBackwardShape(Args args) { return PadBackwardShape(args, 3, /*reflects=*/false); }

// `input` [batch, channels, places...] at `grid` [batch, places..., coordinates].
bool IsGrid(const at::Tensor& input, const at::Tensor& grid, const c10::IValue& interpolation, int64_t spatial) {
  const bool one_dtype = HaveOneFloatDtype({input, grid});
  if (!one_dtype || input.dim() != spatial + 2 || grid.dim() != spatial + 2 || input.numel() == 0 || grid.numel() == 0) return false;
  constexpr int64_t kBicubic = 2;
  if (interpolation.toInt() < 0 || interpolation.toInt() > kBicubic || (interpolation.toInt() == kBicubic && spatial != 2)) return false;
  return input.size(0) == grid.size(0) && grid.size(-1) == spatial;
}

// (input, grid, interpolation, padding, align_corners)
Shapes GridSamplerShape(Args args, int64_t spatial) {
  const at::Tensor input = TensorArg(args[0]);
  const at::Tensor grid = TensorArg(args[1]);
  if (!IsGrid(input, grid, args[2], spatial)) return {};
  std::vector<int64_t> sizes = {input.size(0), input.size(1)};
  for (int64_t d = 1; d <= spatial; ++d) sizes.push_back(grid.size(d));
  return {Fresh(sizes, input.scalar_type())};
}

// (grad, input, grid, interpolation, padding, align_corners, output_mask)
Shapes GridSamplerBackwardShape(Args args, int64_t spatial) {
  const at::Tensor grad = TensorArg(args[0]);
  const at::Tensor input = TensorArg(args[1]);
  const at::Tensor grid = TensorArg(args[2]);
  const Shapes output = GridSamplerShape(args.slice(1), spatial);
  if (output.empty() || !HaveOneFloatDtype({grad, input}) || !grad.sizes().equals(output[0].sizes())) return {};
  // The grid's gradient comes out, wanted or not.
  const at::Tensor grad_input = MaskArg(args[6])[0] ? Fresh(input.sizes(), input.scalar_type()) : at::Tensor();
  return {grad_input, Fresh(grid.sizes(), grid.scalar_type())};
}

Shapes GridSampler2dShape(Args args) { return GridSamplerShape(args, 2); }
Shapes GridSampler3dShape(Args args) { return GridSamplerShape(args, 3); }
Shapes GridSampler2dBackwardShape(Args args) { return GridSamplerBackwardShape(args, 2); }
Shapes GridSampler3dBackwardShape(Args args) { return GridSamplerBackwardShape(args, 3); }

// Windows of an image of `places`: (kernel, dilation, padding, stride). 0 where they are refused.
int64_t CountWindows(at::IntArrayRef places, Args args) {
  const std::vector<int64_t> kernel = Every(args[0], 2, 1), dilation = Every(args[1], 2, 1);
  const std::vector<int64_t> padding = Every(args[2], 2, 0), stride = Every(args[3], 2, 1);
  if (kernel.empty() || dilation.empty() || padding.empty() || stride.empty()) return 0;
  int64_t windows = 1;
  for (const auto d : c10::irange(size_t{2})) {
    const int64_t room = places[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    if (room < 0) return 0;
    windows *= room / stride[d] + 1;
  }
  return windows;
}

int64_t Product(const std::vector<int64_t>& numbers) {
  int64_t product = 1;
  for (const int64_t number : numbers) product *= number;
  return product;
}

// (self, kernel, dilation, padding, stride): [batch?, channels x kernel, windows].
Shapes Im2ColShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  if (!IsImage(self, 2)) return {};
  const int64_t windows = CountWindows(self.sizes().slice(self.dim() - 2), args.slice(1));
  if (windows == 0) return {};
  std::vector<int64_t> sizes(self.sizes().begin(), self.sizes().end() - 2);
  sizes.back() *= Product(Every(args[1], 2, 1));
  sizes.push_back(windows);
  return {Fresh(sizes, self.scalar_type())};
}

// (self, output_size, kernel, dilation, padding, stride)
Shapes Col2ImShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const std::vector<int64_t> places = Every(args[1], 2, 1);
  if (!IsImage(self, 1) || places.empty() || CountWindows(places, args.slice(2)) != self.size(-1)) return {};
  const int64_t area = Product(Every(args[2], 2, 1));
  std::vector<int64_t> sizes(self.sizes().begin(), self.sizes().end() - 1);
  if (sizes.back() % area != 0) return {};
  sizes.back() /= area;
  sizes.insert(sizes.end(), places.begin(), places.end());
  return {Fresh(sizes, self.scalar_type())};
}

// (self, factor)
Shapes PixelShuffleShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const int64_t factor = args[1].toInt();
  if (self.dim() < 3 || self.numel() == 0 || !HasDefaultStrides(self) || factor < 1 || self.size(-3) % (factor * factor) != 0) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  int64_t* const last = &sizes.back();
  last[-2] /= factor * factor;
  last[-1] *= factor;
  last[0] *= factor;
  return {Fresh(sizes, self.scalar_type())};
}

Shapes PixelUnshuffleShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const int64_t factor = args[1].toInt();
  if (self.dim() < 3 || self.numel() == 0 || !HasDefaultStrides(self) || factor < 1) return {};
  if (self.size(-1) % factor != 0 || self.size(-2) % factor != 0) return {};
  std::vector<int64_t> sizes = self.sizes().vec();
  int64_t* const last = &sizes.back();
  last[-2] *= factor * factor;
  last[-1] /= factor;
  last[0] /= factor;
  return {Fresh(sizes, self.scalar_type())};
}

// (self, groups)
Shapes ChannelShuffleShape(Args args) {
  const at::Tensor self = TensorArg(args[0]);
  const int64_t groups = args[1].toInt();
  if (self.dim() < 3 || self.numel() == 0 || !HasDefaultStrides(self) || groups < 1 || self.size(1) % groups != 0) return {};
  return {Fresh(self.sizes(), self.scalar_type())};
}

}  // namespace

void AddImageShapes(ShapeTable* table) {
  const std::pair<const char*, Shapes (*)(Args)> rows[] = {
      {"aten::_adaptive_avg_pool2d", AdaptivePool2dShape},
      {"aten::_adaptive_avg_pool2d_backward", AdaptivePool2dBackwardShape},
      {"aten::_adaptive_avg_pool3d", AdaptivePool3dShape},
      {"aten::_adaptive_avg_pool3d_backward", AdaptivePool3dBackwardShape},
      {"aten::max_pool3d_with_indices", MaxPool3dShape},
      {"aten::max_pool3d_with_indices_backward", MaxPool3dBackwardShape},
      {"aten::fractional_max_pool3d_backward", FractionalPool3dBackwardShape},
      {"aten::max_unpool2d", MaxUnpool2dShape},
      {"aten::max_unpool3d", MaxUnpool3dShape},
      {"aten::reflection_pad1d", ReflectionPad1dShape},
      {"aten::reflection_pad2d", ReflectionPad2dShape},
      {"aten::reflection_pad3d", ReflectionPad3dShape},
      {"aten::replication_pad1d", ReplicationPad1dShape},
      {"aten::replication_pad2d", ReplicationPad2dShape},
      {"aten::replication_pad3d", ReplicationPad3dShape},
      {"aten::reflection_pad2d_backward", ReflectionPad2dBackwardShape},
      {"aten::replication_pad2d_backward", ReplicationPad2dBackwardShape},
      {"aten::replication_pad3d_backward", ReplicationPad3dBackwardShape},
      {"aten::grid_sampler_2d", GridSampler2dShape},
      {"aten::grid_sampler_2d_backward", GridSampler2dBackwardShape},
      {"aten::grid_sampler_3d", GridSampler3dShape},
      {"aten::grid_sampler_3d_backward", GridSampler3dBackwardShape},
      {"aten::im2col", Im2ColShape},
      {"aten::col2im", Col2ImShape},
      {"aten::pixel_shuffle", PixelShuffleShape},
      {"aten::pixel_unshuffle", PixelUnshuffleShape},
      {"aten::channel_shuffle", ChannelShuffleShape},
      {"aten::native_channel_shuffle", ChannelShuffleShape},
  };
  for (const auto& [name, function] : rows) table->emplace(name, function);
}

}  // namespace lazuli::tracer
