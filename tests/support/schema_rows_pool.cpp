// Pooling, padding and resampling.
#include "tests/support/schema_ops.h"

namespace lazuli::testing {

const SchemaRows& PoolRows() {
  // clang-format off
  static const auto* rows = new SchemaRows{
      {"avg_pool1d max_pool1d max_pool1d_with_indices",
       "self=t(N,3,12) kernel_size=3|2 stride=2|() padding=0|1 dilation=1 ceil_mode=false|true "
       "count_include_pad=true|false divisor_override=none"},
      {"adaptive_avg_pool1d adaptive_max_pool1d _adaptive_avg_pool1d",
       "self=t(N,3,12) output_size=3|1"},
      {"avg_pool2d max_pool2d max_pool2d_with_indices",
       "self=t(N,3,10,8) kernel_size=3,3|2,2 stride=2,2|() padding=0,0|1,1 dilation=1,1 ceil_mode=false|true "
       "count_include_pad=true|false divisor_override=none"},
      {"adaptive_avg_pool2d adaptive_max_pool2d _adaptive_avg_pool2d",
       "self=t(N,3,10,8) output_size=3,3|1,1"},
      {"avg_pool3d max_pool3d max_pool3d_with_indices",
       "self=t(N,3,6,8,6) kernel_size=3,3,3|2,2,2 stride=2,2,2|() padding=0,0,0|1,1,1 dilation=1,1,1 "
       "ceil_mode=false|true count_include_pad=true|false divisor_override=none"},
      {"adaptive_avg_pool3d adaptive_max_pool3d _adaptive_avg_pool3d",
       "self=t(N,3,6,8,6) output_size=3,3,3|1,1,1"},
      {"avg_pool2d_backward",
       "grad_output=t(2,3,5,4) self=t(2,3,10,8) kernel_size=2,2 stride=2,2 padding=0,0 ceil_mode=false "
       "count_include_pad=true|false divisor_override=none|3"},
      {"avg_pool3d_backward",
       "grad_output=t(2,3,3,4,3) self=t(2,3,6,8,6) kernel_size=2,2,2 stride=2,2,2 padding=0,0,0 ceil_mode=false "
       "count_include_pad=true|false divisor_override=none|3"},
      {"max_pool2d_with_indices_backward",
       "grad_output=t(2,3,5,4) self=t(2,3,10,8) kernel_size=2,2 stride=2,2 padding=0,0 dilation=1,1 ceil_mode=false "
       "indices=!q80(2,3,5,4)"},
      {"max_pool2d_backward",
       "grad_output=t(2,3,5,4) self=t(2,3,10,8) kernel_size=2,2 stride=2,2 padding=0,0 dilation=1,1 ceil_mode=false"},
      {"max_pool3d_with_indices_backward",
       "grad_output=t(2,3,3,4,3) self=t(2,3,6,8,6) kernel_size=2,2,2 stride=2,2,2 padding=0,0,0 dilation=1,1,1 "
       "ceil_mode=false indices=!q288(2,3,3,4,3)"},
      {"_adaptive_avg_pool2d_backward",
       "grad_output=t(2,3,5,4) self=t(2,3,10,8)"},
      {"_adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward",
       "grad_output=t(2,3,3,4,3) self=t(2,3,6,8,6)"},
      {"adaptive_max_pool2d_backward",
       "grad_output=t(2,3,5,4) self=t(2,3,10,8) indices=!q80(2,3,5,4)"},
      {"adaptive_max_pool3d_backward",
       "grad_output=t(2,3,3,4,3) self=t(2,3,6,8,6) indices=!q288(2,3,3,4,3)"},
      {"fractional_max_pool2d",
       "self=t(N,3,10,8) kernel_size=2,2 output_size=5,4 random_samples=u(N,3,2)"},
      {"fractional_max_pool3d",
       "self=t(N,3,6,8,6) kernel_size=2,2,2 output_size=3,4,3 random_samples=u(N,3,3)"},
      {"fractional_max_pool2d_backward",
       "grad_output=t(2,3,5,4) self=t(2,3,10,8) kernel_size=2,2 output_size=5,4 indices=!q80(2,3,5,4)"},
      {"fractional_max_pool3d_backward",
       "grad_output=t(2,3,3,4,3) self=t(2,3,6,8,6) kernel_size=2,2,2 output_size=3,4,3 indices=!q288(2,3,3,4,3)"},
      {"max_unpool2d",
       "self=t(N,3,5,4) indices=!q80(N,3,5,4) output_size=10,8"},
      {"max_unpool3d",
       "self=t(N,3,3,4,3) indices=!q288(N,3,3,4,3) output_size=6,8,6 stride=2,2,2 padding=0,0,0"},
      {"reflection_pad1d replication_pad1d",
       "self=t(N,3,12) padding=1,2"},
      {"reflection_pad1d_backward replication_pad1d_backward",
       "self=t(N,3,12) grad_output=t(N,3,15) padding=1,2"},
      {"reflection_pad2d replication_pad2d",
       "self=t(N,3,10,8) padding=1,2,2,1"},
      {"reflection_pad2d_backward replication_pad2d_backward",
       "self=t(N,3,10,8) grad_output=t(N,3,13,11) padding=1,2,2,1"},
      {"reflection_pad3d replication_pad3d",
       "self=t(N,3,6,8,6) padding=1,2,2,1,1,1"},
      {"reflection_pad3d_backward replication_pad3d_backward",
       "self=t(N,3,6,8,6) grad_output=t(N,3,8,11,9) padding=1,2,2,1,1,1"},
      {"upsample_linear1d upsample_nearest1d _upsample_nearest_exact1d",
       "self=t(N,3,12) output_size=15|12 align_corners=false|true scales=none scales_h=none scales_w=none "
       "scales_d=none"},
      {"upsample_linear1d_backward upsample_nearest1d_backward _upsample_nearest_exact1d_backward",
       "grad_output=t(N,3,15) output_size=15 input_size=N,3,12 align_corners=false|true scales=none scales_h=none "
       "scales_w=none scales_d=none"},
      {"upsample_linear1d.vec upsample_linear1d.vec_out upsample_nearest1d.vec upsample_nearest1d.vec_out "
       "_upsample_nearest_exact1d.vec _upsample_nearest_exact1d.vec_out",
       "input=t(N,3,12) output_size=15 align_corners=false|true scale_factors=none"},
      {"upsample_linear1d.vec upsample_linear1d.vec_out upsample_nearest1d.vec upsample_nearest1d.vec_out "
       "_upsample_nearest_exact1d.vec _upsample_nearest_exact1d.vec_out",
       "input=t(N,3,12) output_size=none align_corners=false|true scale_factors=1.5"},
      {"upsample_bilinear2d upsample_nearest2d _upsample_nearest_exact2d upsample_bicubic2d _upsample_bilinear2d_aa "
       "_upsample_bicubic2d_aa _upsample_lanczos2d_aa",
       "self=t(N,3,10,8) output_size=13,11|10,8 align_corners=false|true scales=none scales_h=none scales_w=none "
       "scales_d=none"},
      {"upsample_bilinear2d_backward upsample_nearest2d_backward _upsample_nearest_exact2d_backward "
       "upsample_bicubic2d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward "
       "_upsample_lanczos2d_aa_backward",
       "grad_output=t(N,3,13,11) output_size=13,11 input_size=N,3,10,8 align_corners=false|true scales=none "
       "scales_h=none scales_w=none scales_d=none"},
      {"upsample_bilinear2d.vec upsample_bilinear2d.vec_out upsample_nearest2d.vec upsample_nearest2d.vec_out "
       "_upsample_nearest_exact2d.vec _upsample_nearest_exact2d.vec_out upsample_bicubic2d.vec "
       "upsample_bicubic2d.vec_out _upsample_bilinear2d_aa.vec _upsample_bilinear2d_aa.vec_out "
       "_upsample_bicubic2d_aa.vec _upsample_bicubic2d_aa.vec_out _upsample_lanczos2d_aa.vec "
       "_upsample_lanczos2d_aa.vec_out",
       "input=t(N,3,10,8) output_size=13,11 align_corners=false|true scale_factors=none"},
      {"upsample_bilinear2d.vec upsample_bilinear2d.vec_out upsample_nearest2d.vec upsample_nearest2d.vec_out "
       "_upsample_nearest_exact2d.vec _upsample_nearest_exact2d.vec_out upsample_bicubic2d.vec "
       "upsample_bicubic2d.vec_out _upsample_bilinear2d_aa.vec _upsample_bilinear2d_aa.vec_out "
       "_upsample_bicubic2d_aa.vec _upsample_bicubic2d_aa.vec_out _upsample_lanczos2d_aa.vec "
       "_upsample_lanczos2d_aa.vec_out",
       "input=t(N,3,10,8) output_size=none align_corners=false|true scale_factors=1.5,1.5"},
      {"upsample_trilinear3d upsample_nearest3d _upsample_nearest_exact3d",
       "self=t(N,3,6,8,6) output_size=8,11,9|6,8,6 align_corners=false|true scales=none scales_h=none scales_w=none "
       "scales_d=none"},
      {"upsample_trilinear3d_backward upsample_nearest3d_backward _upsample_nearest_exact3d_backward",
       "grad_output=t(N,3,8,11,9) output_size=8,11,9 input_size=N,3,6,8,6 align_corners=false|true scales=none "
       "scales_h=none scales_w=none scales_d=none"},
      {"upsample_trilinear3d.vec upsample_trilinear3d.vec_out upsample_nearest3d.vec upsample_nearest3d.vec_out "
       "_upsample_nearest_exact3d.vec _upsample_nearest_exact3d.vec_out",
       "input=t(N,3,6,8,6) output_size=8,11,9 align_corners=false|true scale_factors=none"},
      {"upsample_trilinear3d.vec upsample_trilinear3d.vec_out upsample_nearest3d.vec upsample_nearest3d.vec_out "
       "_upsample_nearest_exact3d.vec _upsample_nearest_exact3d.vec_out",
       "input=t(N,3,6,8,6) output_size=none align_corners=false|true scale_factors=1.5,1.5,1.5"},
  };
  // clang-format on
  return *rows;
}

}  // namespace lazuli::testing
