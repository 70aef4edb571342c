// Losses and what they need for targets.
#include "tests/support/schema_ops.h"

namespace lazuli::testing {

const SchemaRows& LossRows() {
  // clang-format off
  static const auto* rows = new SchemaRows{
      {"nll_loss nll_loss_nd nll_loss_forward",
       "self=t(5,4) target=i4(5) weight=none|t(4) reduction=1|0|2 ignore_index=-100|2"},
      {"nll_loss_backward",
       "grad_output=t() self=t(5,4) target=i4(5) weight=none reduction=1|2 ignore_index=-100 total_weight=p()"},
      {"nll_loss_backward",
       "grad_output=t(5) self=t(5,4) target=i4(5) weight=t(4) reduction=0 ignore_index=-100 total_weight=p()"},
      {"nll_loss2d nll_loss2d_forward",
       "self=t(N,4,3,2) target=i4(N,3,2) weight=none|t(4) reduction=1|0|2 ignore_index=-100|2"},
      {"nll_loss2d_backward",
       "grad_output=t() self=t(2,4,3,2) target=i4(2,3,2) weight=none|t(4) reduction=1|2 ignore_index=-100 "
       "total_weight=p()"},
      {"cross_entropy_loss",
       "self=t(N,4) target=i4(N)|u(N,4) weight=none|t(4) reduction=1|0|2 ignore_index=-100 label_smoothing=0|0.1"},
      {"binary_cross_entropy",
       "self=u(N,4) target=u(N,4) weight=none|t(N,4) reduction=1|0|2"},
      {"binary_cross_entropy_backward",
       "grad_output=t() self=u(N,4) target=u(N,4) weight=none|t(N,4) reduction=1|2"},
      {"binary_cross_entropy_with_logits",
       "self=t(N,4) target=u(N,4) weight=none|t(4) pos_weight=none|p(4) reduction=1|0|2"},
      {"mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss kl_div hinge_embedding_loss",
       "self=t target=t reduction=1|0|2 beta=1|0.5 delta=1|0.5 margin=1 log_target=false|true"},
      {"mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward",
       "grad_output=t() self=t(N,4) target=t(N,4) reduction=1|2 beta=1|0.5 delta=1|0.5"},
      {"mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward",
       "grad_output=t(N,4) self=t(N,4) target=t(N,4) reduction=0 beta=1|0.5 delta=1|0.5"},
      {"smooth_l1_loss_backward.grad_input",
       "grad_output=f(3,4) self=f(3,4) target=f(3,4) reduction=0 beta=1|0.5"},
      {"multi_margin_loss",
       "self=t(N,4) target=i4(N) p=1|2 margin=1 weight=none|t(4) reduction=1|0|2"},
      {"multi_margin_loss_backward",
       "grad_output=t() self=t(3,4) target=i4(3) p=1|2 margin=1 weight=none|t(4) reduction=1|2"},
      {"multilabel_margin_loss multilabel_margin_loss_forward",
       "self=t(N,4) target=i4(N,4) reduction=1|0|2"},
      {"multilabel_margin_loss_backward",
       "grad_output=t() self=t(3,4) target=i4(3,4) reduction=1|2 is_target=I2(3,4)"},
      {"margin_ranking_loss",
       "input1=t input2=t target=t margin=0|0.5 reduction=1|0|2"},
      {"cosine_embedding_loss",
       "input1=t(N,4) input2=t(N,4) target=o(N) margin=0 reduction=1|0|2"},
      {"triplet_margin_loss",
       "anchor=t(N,4) positive=t(N,4) negative=t(N,4) margin=1 p=2 eps=1e-06 swap=false|true reduction=1|0|2"},
      {"poisson_nll_loss",
       "input=t target=p log_input=true|false full=false|true eps=1e-08 reduction=1|0|2"},
      {"ctc_loss.IntList _ctc_loss",
       "log_probs=t(6,2,4) targets=l{1,2,3,1,2} input_lengths=6,5 target_lengths=3,2 blank=0 reduction=1|0|2 "
       "zero_infinity=false|true"},
      {"ctc_loss.Tensor _ctc_loss.Tensor _ctc_loss.Tensor_out",
       "log_probs=t(6,2,4) targets=l{1,2,3,1,2} input_lengths=l{6,5} target_lengths=l{3,2} blank=0 reduction=1|0|2 "
       "zero_infinity=false|true"},
      {"_ctc_loss_backward",
       "grad=!t(2) log_probs=!t(6,2,4) targets=l{1,2,3,1,2} input_lengths=6,5 target_lengths=3,2 "
       "neg_log_likelihood=!p(2) log_alpha=!t(2,6,7) blank=0 zero_infinity=false"},
      {"_ctc_loss_backward.Tensor",
       "grad=!t(2) log_probs=!t(6,2,4) targets=l{1,2,3,1,2} input_lengths=l{6,5} target_lengths=l{3,2} "
       "neg_log_likelihood=!p(2) log_alpha=!t(2,6,7) blank=0 zero_infinity=false"},
  };
  // clang-format on
  return *rows;
}

}  // namespace lazuli::testing
