// Convolutions, normalisations, activations with constraints, attention.
#include "tests/support/schema_ops.h"

namespace lazuli::testing {

const SchemaRows& NnRows() {
  // clang-format off
  static const auto* rows = new SchemaRows{
      {"convolution _convolution",
       "input=t(N,3,8,6) weight=t(4,3,3,3) bias=t(4)|none stride=1,1|2,1 padding=0,0|1,1 dilation=1,1 "
       "transposed=false output_padding=0,0 groups=1 benchmark=false deterministic=false cudnn_enabled=false "
       "allow_tf32=false"},
      {"convolution _convolution",
       "input=t(N,4,6) weight=t(4,2,3) bias=t(4)|none stride=1|2 padding=1 dilation=1 transposed=true|false "
       "output_padding=0 groups=2 benchmark=false deterministic=false cudnn_enabled=false allow_tf32=false"},
      {"_convolution_mode",
       "input=t(N,3,8,6) weight=t(4,3,3,3) bias=t(4)|none stride=1,1 padding=same|valid dilation=1,1 groups=1"},
      {"convolution_backward",
       "grad_output=t(2,4,6,4) input=t(2,3,8,6) weight=t(4,3,3,3) bias_sizes=4 stride=1,1 padding=0,0 dilation=1,1 "
       "transposed=false output_padding=0,0 groups=1 output_mask=true,true,true|true,false,true"},
      {"_convolution_double_backward",
       "ggI=t(2,2,4,4) ggW=t(2,2,3,3) ggb=none|t(2) gO=t(2,2,2,2) weight=t(2,2,3,3) self=t(2,2,4,4) stride=1,1 "
       "padding=0,0 dilation=1,1 transposed=false output_padding=0,0 groups=1 output_mask=true,true,true"},
      {"conv1d",
       "input=t(N,3,8) weight=t(4,3,3) bias=none|t(4) stride=1|2 padding=0|1 dilation=1 groups=1"},
      {"conv1d.padding",
       "input=t(N,3,8) weight=t(4,3,3) bias=none|t(4) stride=1 padding=same|valid dilation=1 groups=1"},
      {"conv2d",
       "input=t(N,3,8,6) weight=t(4,3,3,3) bias=none|t(4) stride=1|2 padding=0|1 dilation=1 groups=1"},
      {"conv2d.padding",
       "input=t(N,3,8,6) weight=t(4,3,3,3) bias=none|t(4) stride=1 padding=same|valid dilation=1 groups=1"},
      {"conv3d",
       "input=t(N,3,5,6,4) weight=t(4,3,3,3,3) bias=none|t(4) stride=1|2 padding=0|1 dilation=1 groups=1"},
      {"conv3d.padding",
       "input=t(N,3,5,6,4) weight=t(4,3,3,3,3) bias=none|t(4) stride=1 padding=same|valid dilation=1 groups=1"},
      {"conv_transpose1d",
       "input=t(N,3,8) weight=t(3,4,3) bias=none|t(4) stride=1|2 padding=0|1 dilation=1 groups=1"},
      {"conv_transpose2d.input conv_transpose2d",
       "input=t(N,3,8,6) weight=t(3,4,3,3) bias=none|t(4) stride=1|2 padding=0|1 dilation=1 groups=1"},
      {"conv_transpose3d.input conv_transpose3d",
       "input=t(N,3,4,5,3) weight=t(3,4,2,2,2) bias=none|t(4) stride=1|2 padding=0|1 dilation=1 groups=1"},
      {"conv_tbc",
       "self=t(8,N,3) weight=t(3,3,4) bias=t(4) pad=0|1"},
      {"conv_tbc_backward",
       "self=t(6,2,4) input=t(8,2,3) weight=t(3,3,4) bias=t(4) pad=0"},
      {"slow_conv3d slow_conv3d_forward",
       "self=t(N,3,5,6,4) weight=t(4,3,3,3,3) kernel_size=3,3,3 bias=none|t(4) stride=1,1,1 padding=0,0,0|1,1,1"},
      {"thnn_conv2d _slow_conv2d_forward",
       "self=t(N,3,8,6) weight=t(4,3,3,3) kernel_size=3,3 bias=none|t(4) stride=1,1 padding=0,0|1,1"},
      {"_slow_conv2d_backward.output_mask _slow_conv2d_backward.output_mask_out",
       "grad_output=t(2,4,6,4) self=t(2,3,8,6) weight=t(4,3,3,3) kernel_size=3,3 stride=1,1 padding=0,0 "
       "output_mask=true,true,true|true,false,true"},
      {"_slow_conv2d_backward.grad_input",
       "grad_output=t(2,4,6,4) self=t(2,3,8,6) weight=t(4,3,3,3) kernel_size=3,3 stride=1,1 padding=0,0 "
       "grad_input=!t(2,3,8,6) grad_weight=!t(4,3,3,3) grad_bias=!t(4)"},
      {"slow_conv_dilated2d",
       "self=t(N,3,8,6) weight=t(4,3,3,3) kernel_size=3,3 bias=none|t(4) stride=1,1 padding=0,0|1,1 dilation=1,1|2,1"},
      {"slow_conv_dilated3d",
       "self=t(N,3,5,6,5) weight=t(4,3,2,2,2) kernel_size=2,2,2 bias=none|t(4) stride=1,1,1 padding=0,0,0|1,1,1 "
       "dilation=1,1,1|2,1,1"},
      {"slow_conv_transpose2d",
       "self=t(N,3,8,6) weight=t(3,4,3,3) kernel_size=3,3 bias=none|t(4) stride=1,1|2,2 padding=0,0 "
       "output_padding=0,0 dilation=1,1"},
      {"slow_conv_transpose3d",
       "self=t(N,3,4,5,3) weight=t(3,4,2,2,2) kernel_size=2,2,2 bias=none|t(4) stride=1,1,1|2,2,2 padding=0,0,0 "
       "output_padding=0,0,0 dilation=1,1,1"},
      {"conv_depthwise3d",
       "self=t(N,3,4,5,3) weight=t(3,1,2,2,2) kernel_size=2,2,2 bias=t(3) stride=1,1,1 padding=0,0,0 dilation=1,1,1"},
      {"_conv_depthwise2d",
       "self=t(N,3,8,6) weight=t(3,1,3,3) kernel_size=3,3 bias=t(3) stride=1,1 padding=0,0 dilation=1,1"},
      {"_nnpack_spatial_convolution",
       "input=t(2,3,8,6) weight=t(4,3,3,3) bias=t(4) padding=0,0 stride=1,1"},
      {"batch_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm _batch_norm_impl_index",
       "input=t(N,3,5)|t(N,3,4,5) weight=t(3)|none bias=t(3)|none running_mean=!t(3) running_var=!p(3) "
       "training=true|false momentum=0.1|0.2 eps=1e-05 cudnn_enabled=false"},
      {"_native_batch_norm_legit.no_stats _native_batch_norm_legit.no_stats_out",
       "input=t(N,3,5) weight=t(3)|none bias=t(3)|none training=true momentum=0.1 eps=1e-05"},
      {"_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update "
       "_batch_norm_with_update_functional _native_batch_norm_legit_functional",
       "input=t(N,3,5)|t(N,3,4,5) weight=t(3) bias=t(3) running_mean=!t(3) running_var=!p(3) training=true|false "
       "momentum=0.1|0.2 eps=1e-05"},
      {"native_batch_norm_backward",
       "grad_out=t(2,3,5) input=t(2,3,5) weight=t(3) running_mean=!t(3) running_var=!p(3) save_mean=t(3) "
       "save_invstd=p(3) train=true|false eps=1e-05 output_mask=true,true,true|true,false,true"},
      {"batch_norm_backward",
       "grad_out=t(2,3,5) input=t(2,3,5) weight=t(3) running_mean=!t(3) running_var=!p(3) save_mean=t(3) "
       "save_var=p(3) update=true|false eps=1e-05 output_mask=true,true,true reserve=y1(0)"},
      {"_batch_norm_impl_index_backward",
       "impl_index=0 grad_output=t(2,3,5) input=t(2,3,5) weight=t(3) running_mean=!t(3) running_var=!p(3) "
       "save_mean=t(3) save_var_transform=p(3) train=true|false eps=1e-05 output_mask=true,true,true "
       "reservedSpace=y1(0)"},
      {"batch_norm_update_stats",
       "input=t(N,3,5) running_mean=!t(3) running_var=!p(3) momentum=0.1"},
      {"batch_norm_elemt batch_norm_stats",
       "input=t(N,3,5) weight=t(3) bias=t(3) mean=t(3) invstd=p(3) eps=1e-05"},
      {"instance_norm",
       "input=t(N,3,5) weight=t(3)|none bias=t(3)|none running_mean=!t(3)|none running_var=!p(3)|none "
       "use_input_stats=true momentum=0.1 eps=1e-05 cudnn_enabled=false"},
      {"group_norm",
       "input=t(N,6,5) num_groups=2|3 weight=t(6)|none bias=t(6)|none eps=1e-05 cudnn_enabled=false"},
      {"native_group_norm",
       "input=t(2,6,5)|t(2,6,5) weight=t(6)|none bias=t(6)|none N=2 C=6 HxW=5 group=2|3 eps=1e-05"},
      {"native_group_norm_backward",
       "grad_out=!t(2,6,5) input=!t(2,6,5) mean=!t(2,2) rstd=!p(2,2) weight=!t(6) N=2 C=6 HxW=5 group=2 "
       "output_mask=true,true,true"},
      {"layer_norm native_layer_norm rms_norm _fused_rms_norm",
       "input=t(N,3,5) normalized_shape=5|3,5 weight=t(5)|t(3,5) bias=t(5)|t(3,5) eps=1e-05 cudnn_enable=false"},
      {"layer_norm native_layer_norm rms_norm _fused_rms_norm",
       "input=t(N,5) normalized_shape=5 weight=none bias=none eps=1e-05 cudnn_enable=false"},
      {"native_layer_norm_backward",
       "grad_out=t(N,5) input=t(N,5) normalized_shape=5 mean=!t(N,1) rstd=!p(N,1) weight=t(5)|none bias=t(5)|none "
       "output_mask=true,true,true"},
      {"_fused_rms_norm_backward",
       "grad_out=t(N,5) input=t(N,5) normalized_shape=5 rstd=!p(N,1) weight=t(5)|none output_mask=true,true"},
      {"local_response_norm",
       "self=t(N,4,5)"},
      {"_weight_norm _weight_norm_interface",
       "v=!t(4,5) g=!t(4,1) dim=0"},
      {"_weight_norm_interface_backward _weight_norm_differentiable_backward",
       "grad_w=!t(4,5) saved_v=!t(4,5) saved_g=!t(4,1) saved_norms=!p(4,1) dim=0"},
      {"glu",
       "self=t(N,6,4) dim=1|-1"},
      {"glu_backward",
       "grad_output=t(N,3,4) self=t(N,6,4) dim=1"},
      {"glu_jvp",
       "glu=t(N,3,4) x=t(N,6,4) dx=t(N,6,4) dim=1"},
      {"glu_backward_jvp",
       "grad_x=t(N,6,4) grad_glu=t(N,3,4) x=t(N,6,4) dgrad_glu=t(N,3,4) dx=t(N,6,4) dim=1"},
      {"prelu",
       "self=t(N,3,4) weight=t(3)|t(1)"},
      {"_prelu_kernel",
       "self=t(N,3,4) weight=t(1,3,1)|t(1,1,1)"},
      {"_prelu_kernel_backward",
       "grad_output=t(N,3,4) self=t(N,3,4) weight=t(1,3,1)"},
      {"rrelu_with_noise.out",
       "self=t(2,4) noise=!z(2,4) lower=0.1 upper=0.3 training=true|false out=!t(2,4)"},
      {"rrelu rrelu_with_noise rrelu_with_noise_functional",
       "self=t(N,4) noise=!z(N,4) lower=0.1 upper=0.3 training=true|false"},
      {"rrelu_with_noise_backward",
       "grad_output=t(N,4) self=t(N,4) noise=t(N,4) lower=0.1 upper=0.3 training=true|false self_is_result=false"},
      {"elu_backward",
       "grad_output=t(N,4) self_or_result=t(N,4) alpha=1|0.5 scale=1 input_scale=1 is_result=false|true"},
      {"leaky_relu_backward",
       "grad_output=t(N,4) self=t(N,4) negative_slope=0.1|-0.2 self_is_result=true|false"},
      {"log_sigmoid_backward",
       "grad_output=t(N,4) self=t(N,4) buffer=t(N,4)"},
      {"_softmax softmax.int log_softmax.int _log_softmax _safe_softmax special_softmax special_log_softmax",
       "self=t(N,3,4) dim=1|-1|0 half_to_float=false dtype=none|double"},
      {"_softmax_backward_data _log_softmax_backward_data",
       "grad_output=t(N,4) output=t(N,4) dim=1|0 input_dtype=float"},
      {"_softmax_backward_data.out _log_softmax_backward_data.out",
       "grad_output=!t(N,4) output=!t(N,4) dim=1|0 input_dtype=float"},
      {"softmax.Dimname log_softmax.Dimname",
       "self=t(3,4) dim=dimname::N1 dtype=none"},
      {"_masked_softmax",
       "self=t(2,3,4,4) mask=b(2,3,4,4) dim=none|3 mask_type=2"},
      {"_masked_softmax_backward",
       "grad_output=t(2,3,4,4) output=t(2,3,4,4) mask=b(2,3,4,4) dim=none|3"},
      {"dropout feature_dropout alpha_dropout feature_alpha_dropout",
       "input=t(N,3,4) self=t(N,3,4) p=0.5|0.25|0 train=true|false"},
      {"native_dropout",
       "input=t(N,4) p=0.5|0.25 train=true|false|none"},
      {"native_dropout_backward",
       "grad_output=t(N,4) mask=b(N,4) scale=2"},
      {"_fused_dropout",
       "self=t(N,4) p=0.5"},
      {"scaled_dot_product_attention _scaled_dot_product_attention_math _fused_sdp_choice",
       "query=t(N,2,4,8) key=t(N,2,5,8) value=t(N,2,5,8) attn_mask=none|b(4,5)|t(4,5) dropout_p=0 is_causal=false "
       "dropout_mask=none scale=none enable_gqa=false"},
      {"scaled_dot_product_attention",
       "query=t(2,4,5,8) key=t(2,2,5,8) value=t(2,2,5,8) attn_mask=none dropout_p=0 is_causal=true scale=none "
       "enable_gqa=true"},
      {"_scaled_dot_product_flash_attention_for_cpu",
       "query=t(2,2,4,8) key=t(2,2,5,8) value=t(2,2,5,8) dropout_p=0 is_causal=false|true attn_mask=none scale=none"},
      {"_scaled_dot_product_flash_attention_for_cpu_backward",
       "grad_out=!t(2,2,4,8) query=!t(2,2,4,8) key=!t(2,2,5,8) value=!t(2,2,5,8) out=!t(2,2,4,8) logsumexp=!t(2,2,4) "
       "dropout_p=0 is_causal=false|true attn_mask=none scale=none"},
      {"_transform_bias_rescale_qkv",
       "qkv=t(2,3,24) qkv_bias=t(24) num_heads=2"},
      {"_native_multi_head_attention",
       "query=t(2,3,8) key=t(2,3,8) value=t(2,3,8) embed_dim=8 num_head=2 qkv_weight=t(24,8) qkv_bias=t(24) "
       "proj_weight=t(8,8) proj_bias=t(8) mask=none need_weights=true|false average_attn_weights=true mask_type=none"},
      {"_transformer_encoder_layer_fwd",
       "src=t(2,3,8) embed_dim=8 num_heads=2 qkv_weight=t(24,8) qkv_bias=t(24) proj_weight=t(8,8) proj_bias=t(8) "
       "use_gelu=false|true norm_first=false|true eps=1e-05 norm_weight_1=t(8) norm_bias_1=t(8) norm_weight_2=t(8) "
       "norm_bias_2=t(8) ffn_weight_1=t(16,8) ffn_bias_1=t(16) ffn_weight_2=t(8,16) ffn_bias_2=t(8) mask=none "
       "mask_type=none"},
      {"grid_sampler grid_sampler_2d _grid_sampler_2d_cpu_fallback",
       "input=t(N,3,5,6) grid=t(N,4,3,2) interpolation_mode=0|1|2 padding_mode=0|1|2 align_corners=false|true"},
      {"grid_sampler grid_sampler_3d",
       "input=t(N,3,5,6,4) grid=t(N,4,3,2,3) interpolation_mode=0|1 padding_mode=0|1|2 align_corners=false|true"},
      {"grid_sampler_2d_backward _grid_sampler_2d_cpu_fallback_backward",
       "grad_output=t(2,3,4,3) input=t(2,3,5,6) grid=t(2,4,3,2) interpolation_mode=0|1|2 padding_mode=0|1|2 "
       "align_corners=false|true output_mask=true,true"},
      {"grid_sampler_3d_backward",
       "grad_output=t(2,3,4,3,2) input=t(2,3,5,6,4) grid=t(2,4,3,2,3) interpolation_mode=0|1 padding_mode=0|1|2 "
       "align_corners=false|true output_mask=true,true"},
      {"_fused_adam _fused_adamw",
       "self=[!t(3,4);!t(5)] grads=[!t(3,4);!t(5)] exp_avgs=[!t(3,4);!t(5)] exp_avg_sqs=[!p(3,4);!p(5)] "
       "max_exp_avg_sqs=[]|[!p(3,4);!p(5)] state_steps=[!P();!P()] lr=0.1 beta1=0.9 beta2=0.99 weight_decay=0|0.1 "
       "eps=1e-08 amsgrad=false|true maximize=false grad_scale=none found_inf=none"},
      {"_fused_adam.tensor_lr _fused_adamw.tensor_lr _fused_adam_.tensor_lr _fused_adamw_.tensor_lr "
       "_fused_adam.tensor_lr_out _fused_adamw.tensor_lr_out",
       "self=[!t(3,4);!t(5)] grads=[!t(3,4);!t(5)] exp_avgs=[!t(3,4);!t(5)] exp_avg_sqs=[!p(3,4);!p(5)] "
       "max_exp_avg_sqs=[]|[!p(3,4);!p(5)] state_steps=[!P();!P()] lr=P() beta1=0.9 beta2=0.99 weight_decay=0|0.1 "
       "eps=1e-08 amsgrad=false|true maximize=false grad_scale=none found_inf=none"},
      {"_fused_sgd",
       "self=[!t(3,4);!t(5)] grads=[!t(3,4);!t(5)] momentum_buffer_list=[!t(3,4);!t(5)] weight_decay=0|0.1 "
       "momentum=0.9 lr=0.1 dampening=0 nesterov=false|true maximize=false is_first_step=false grad_scale=none "
       "found_inf=none"},
      {"_fused_sgd.tensor_lr _fused_sgd_.tensor_lr _fused_sgd.tensor_lr_out",
       "self=[!t(3,4);!t(5)] grads=[!t(3,4);!t(5)] momentum_buffer_list=[!t(3,4);!t(5)] weight_decay=0|0.1 "
       "momentum=0.9 lr=!d() dampening=0 nesterov=false|true maximize=false is_first_step=false grad_scale=none "
       "found_inf=none"},
      {"_fused_adagrad",
       "self=[!t(3,4);!t(5)] grads=[!t(3,4);!t(5)] state_sums=[!p(3,4);!p(5)] state_steps=[!P();!P()] lr=0.1 "
       "lr_decay=0.1 weight_decay=0|0.1 eps=1e-08 maximize=false grad_scale=none found_inf=none"},
      {"_fused_adagrad.tensor_lr _fused_adagrad_.tensor_lr _fused_adagrad.tensor_lr_out",
       "self=[!t(3,4);!t(5)] grads=[!t(3,4);!t(5)] state_sums=[!p(3,4);!p(5)] state_steps=[!P();!P()] lr=P() "
       "lr_decay=0.1 weight_decay=0|0.1 eps=1e-08 maximize=false grad_scale=none found_inf=none"},
      {"_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional fused_moving_avg_obs_fake_quant",
       "self=t(N,4) observer_on=l{1} fake_quant_on=l{1} running_min=f(1) running_max=f(1) scale=f(1) zero_point=j1(1) "
       "averaging_const=0.1 quant_min=0 quant_max=255 ch_axis=0 per_row_fake_quant=false symmetric_quant=false"},
      {"_amp_update_scale",
       "self=P() growth_tracker=j1() found_inf=f() scale_growth_factor=2 scale_backoff_factor=0.5 growth_interval=3"},
      {"_amp_foreach_non_finite_check_and_unscale",
       "self=[f(3,4);f(5)] found_inf=f() inv_scale=P()"},
  };
  // clang-format on
  return *rows;
}

}  // namespace lazuli::testing
