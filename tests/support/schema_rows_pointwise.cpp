// Elementwise operators and reductions whose arguments have a narrow domain.
#include "tests/support/schema_ops.h"

namespace lazuli::testing {

const SchemaRows& PointwiseRows() {
  // clang-format off
  static const auto* rows = new SchemaRows{
      {"_foreach_addcdiv.Tensor _foreach_addcmul.Tensor _foreach_addcdiv_.Tensor _foreach_addcmul_.Tensor "
       "_foreach_addcdiv.Tensor_out _foreach_addcmul.Tensor_out",
       "self=[t;t] tensor1=[t;t] tensor2=[t;t] scalars=!t(2)"},
      {"_foreach_addcdiv.ScalarList _foreach_addcmul.ScalarList _foreach_addcdiv.ScalarList_out "
       "_foreach_addcmul.ScalarList_out _foreach_addcdiv_.ScalarList _foreach_addcmul_.ScalarList",
       "self=[t;t] tensor1=[t;t] tensor2=[t;t] scalars=2,3|0.5,1.5"},
      {"_foreach_add.ScalarList _foreach_sub.ScalarList _foreach_mul.ScalarList _foreach_div.ScalarList "
       "_foreach_clamp_min.ScalarList _foreach_clamp_max.ScalarList _foreach_minimum.ScalarList "
       "_foreach_maximum.ScalarList _foreach_pow.ScalarList _foreach_add.ScalarList_out _foreach_sub.ScalarList_out "
       "_foreach_mul.ScalarList_out _foreach_div.ScalarList_out _foreach_clamp_min.ScalarList_out "
       "_foreach_clamp_max.ScalarList_out _foreach_minimum.ScalarList_out _foreach_maximum.ScalarList_out "
       "_foreach_pow.ScalarList_out",
       "self=[t;t] scalars=2,3|0.5,1.5 exponent=2,3"},
      {"_foreach_add.Tensor _foreach_mul.Tensor _foreach_div.Tensor _foreach_add_.Tensor _foreach_mul_.Tensor "
       "_foreach_div_.Tensor _foreach_add.Tensor_out _foreach_mul.Tensor_out _foreach_div.Tensor_out",
       "self=[t;t] other=t() alpha=1|2"},
      {"_foreach_add.List _foreach_sub.List _foreach_mul.List _foreach_div.List",
       "self=[t;t] other=[t;t] alpha=1|2"},
      {"_foreach_lerp.List",
       "self=[t;t] tensors1=[t;t] weights=[t;t]"},
      {"_foreach_lerp.ScalarList _foreach_lerp_.ScalarList _foreach_lerp.ScalarList_out",
       "self=[t;t] tensors1=[t;t] weight=0.5,0.25"},
      {"_foreach_norm",
       "self=[t;t] ord=2|1|inf dtype=none"},
      {"_foreach_powsum",
       "self=[t;t] ord=2|1 dtype=none"},
      {"_foreach_pow.ScalarAndTensor",
       "self=2|3 exponent=[t;t]"},
      {"_foreach_copy",
       "self=[t;t] src=[t;t] non_blocking=false"},
      {"bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__ "
       "__irshift__",
       "self=j4|i4|y4|b other=j3|i3|y3|b"},
      {"gcd lcm",
       "self=j9|i9|y9 other=j5|i5|y5"},
      {"bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar bitwise_left_shift.Tensor_Scalar "
       "bitwise_right_shift.Tensor_Scalar bitwise_and_.Scalar bitwise_or_.Scalar bitwise_xor_.Scalar "
       "bitwise_and.Scalar_out bitwise_or.Scalar_out bitwise_xor.Scalar_out __lshift__.Scalar __rshift__.Scalar "
       "__ilshift__.Scalar __irshift__.Scalar",
       "self=j4|i4|y4|b other=2|1|3"},
      {"bitwise_and.Scalar_Tensor bitwise_or.Scalar_Tensor bitwise_xor.Scalar_Tensor bitwise_left_shift.Scalar_Tensor "
       "bitwise_right_shift.Scalar_Tensor",
       "self=2|1|3 other=j4|i4|y4|b"},
      {"floor_divide remainder fmod div.Tensor_mode divide.Tensor_mode",
       "self=x other=p rounding_mode=floor|trunc|none"},
      {"floor_divide.Scalar remainder.Scalar fmod.Scalar div.Scalar_mode divide.Scalar_mode floor_divide_.Scalar "
       "remainder_.Scalar fmod_.Scalar div_.Scalar_mode divide_.Scalar_mode",
       "self=t other=2|1.5|3|-2 rounding_mode=floor|trunc|none"},
      {"remainder.Scalar_Tensor",
       "self=7|5.5 other=p"},
      {"clamp clip clamp_ clip_",
       "self=x min=-1|0.5|none max=1|2"},
      {"clamp.Tensor clip.Tensor clamp_.Tensor clip_.Tensor clamp.Tensor_out clip.Tensor_out",
       "self=x min=t|none max=t"},
      {"lerp.Scalar lerp.Tensor",
       "self=t end=t weight=0.5|0.25"},
      {"lerp.Tensor lerp_.Tensor lerp.Tensor_out",
       "self=t end=t weight=t"},
      {"polygamma",
       "self=p n=0|1|2"},
      {"polygamma",
       "n=0|1|2 self=p"},
      {"mvlgamma special_multigammaln",
       "self=p p=1"},
      {"igamma igammac special_gammainc special_gammaincc special_zeta",
       "self=p other=p"},
      {"xlogy special_xlogy special_xlog1py",
       "self=x other=p"},
      {"logit special_logit logit_backward",
       "self=u eps=none|0.1 grad_output=t"},
      {"frexp ldexp",
       "self=t"},
      {"var std var_mean std_mean",
       "self=t(N,4,3) dim=1|0,2 correction=1|0|2 unbiased=true|false keepdim=false|true"},
      {"var.names_dim std.names_dim var_mean.names_dim std_mean.names_dim var.names_out std.names_out "
       "var.correction_names std.correction_names var_mean.correction_names std_mean.correction_names "
       "var.correction_names_out std.correction_names_out",
       "self=t(3,4) dim=dimname::N1 correction=1|0 unbiased=true|false"},
      {"sum nansum mean nanmean",
       "self=t(N,4,3) dim=1|0,2|() keepdim=false|true dtype=none"},
      {"sum.dim_DimnameList mean.names_dim sum.DimnameList_out mean.names_out logsumexp.names logsumexp.names_out",
       "self=t(3,4) dim=dimname::N1 keepdim=false|true dtype=none"},
      {"prod.dim_int prod.int_out",
       "self=t(N,4,3) dim=1|-1 keepdim=false|true dtype=none"},
      {"logsumexp special_logsumexp amax amin count_nonzero.dim_IntList",
       "self=t(N,4,3) dim=1|0,2 keepdim=false|true"},
      {"cumsum cumprod logcumsumexp _cumsum _cumprod _logcumsumexp",
       "self=t(N,4,3) dim=1|-1|0 dtype=none"},
      {"_cummax_helper _cummin_helper",
       "self=t(3,4) values=!t(3,4) indices=!i1(3,4) dim=1"},
      {"cumprod_backward",
       "grad=t(3,4) input=t(3,4) dim=1 output=t(3,4)"},
      {"result_type can_cast promote_types",
       "dtype=float"},
      {"allclose isclose",
       "self=t other=t rtol=0.1|1e-05 atol=1e-08 equal_nan=false|true"},
      {"hardtanh hardtanh_",
       "self=t min_val=-1|0 max_val=1|6"},
      {"hardtanh_backward",
       "grad_output=t self=t min_val=-1 max_val=1"},
      {"softplus_backward",
       "grad_output=t self=t beta=1 threshold=20|1"},
      {"threshold threshold_backward",
       "self=t grad_output=t threshold=0.5|0 value=1|0"},
      {"nan_to_num",
       "self=x nan=none|1 posinf=none|2 neginf=none|-2"},
      {"hash_tensor",
       "self=t dim=0|() mode=0"},
      {"_fake_quantize_learnable",
       "self=t"},
      {"addcdiv",
       "self=t tensor1=t tensor2=p value=2|0.5"},
      {"pow.Tensor_Scalar pow_.Scalar float_power.Tensor_Scalar float_power_.Scalar pow.Tensor_Scalar_out",
       "self=t exponent=2|0.5|3|-1|0"},
      {"equal",
       "self=z other=z"},
      {"is_same_size",
       "self=t other=t"},
  };
  // clang-format on
  return *rows;
}

}  // namespace lazuli::testing
