// Recurrent layers, Fourier transforms, sequences.
#include "tests/support/schema_ops.h"

namespace lazuli::testing {

const SchemaRows& SequenceRows() {
  // clang-format off
  static const auto* rows = new SchemaRows{
      {"lstm.input",
       "input=t(2,2,4) hx=[t(1,2,3);t(1,2,3)] params=[t(12,4);t(12,3);t(12);t(12)] has_biases=true num_layers=1 "
       "dropout=0 train=false|true bidirectional=false batch_first=false|true"},
      {"gru.input",
       "input=t(2,2,4) hx=t(1,2,3) params=[t(9,4);t(9,3);t(9);t(9)] has_biases=true num_layers=1 dropout=0 "
       "train=false|true bidirectional=false batch_first=false|true"},
      {"rnn_tanh.input rnn_relu.input",
       "input=t(2,2,4) hx=t(1,2,3) params=[t(3,4);t(3,3);t(3);t(3)] has_biases=true num_layers=1 dropout=0 "
       "train=false|true bidirectional=false batch_first=false|true"},
      {"lstm.data",
       "data=t(5,4) batch_sizes=l{2,2,1} hx=[t(1,2,3);t(1,2,3)] params=[t(12,4);t(12,3);t(12);t(12)] has_biases=true "
       "num_layers=1 dropout=0 train=false|true bidirectional=false batch_first=false|true"},
      {"gru.data",
       "data=t(5,4) batch_sizes=l{2,2,1} hx=t(1,2,3) params=[t(9,4);t(9,3);t(9);t(9)] has_biases=true num_layers=1 "
       "dropout=0 train=false|true bidirectional=false batch_first=false|true"},
      {"rnn_tanh.data rnn_relu.data",
       "data=t(5,4) batch_sizes=l{2,2,1} hx=t(1,2,3) params=[t(3,4);t(3,3);t(3);t(3)] has_biases=true num_layers=1 "
       "dropout=0 train=false|true bidirectional=false batch_first=false|true"},
      {"lstm_cell",
       "input=t(N,4) hx=[t(N,3);t(N,3)] w_ih=t(12,4) w_hh=t(12,3) b_ih=t(12) b_hh=t(12)"},
      {"gru_cell",
       "input=t(N,4) hx=t(N,3) w_ih=t(9,4) w_hh=t(9,3) b_ih=t(9) b_hh=t(9)"},
      {"rnn_tanh_cell rnn_relu_cell",
       "input=t(N,4) hx=t(N,3) w_ih=t(3,4) w_hh=t(3,3) b_ih=t(3)|none b_hh=t(3)|none"},
      {"_thnn_differentiable_lstm_cell_backward",
       "grad_hy=t(N,3) grad_cy=t(N,3) input_gates=t(N,12) hidden_gates=t(N,12) input_bias=t(12) hidden_bias=t(12) "
       "cx=t(N,3) cy=t(N,3)"},
      {"_thnn_differentiable_gru_cell_backward",
       "grad_hy=t(N,3) input_gates=t(N,9) hidden_gates=t(N,9) hx=t(N,3) input_bias=t(9) hidden_bias=t(9)"},
      {"_pack_padded_sequence",
       "input=t(4,3,2) lengths=l{4,2,1} batch_first=false"},
      {"_pack_padded_sequence_backward",
       "grad=t(7,2) input_size=4,3,2 batch_sizes=l{3,2,1,1} batch_first=false"},
      {"_pad_packed_sequence",
       "data=t(7,2) batch_sizes=l{3,2,1,1} batch_first=false|true padding_value=0|1.5 total_length=-1|5"},
      {"mkldnn_rnn_layer",
       "input=t(2,2,4)"},
      {"fft_fft fft_ifft fft_rfft fft_ihfft",
       "self=t(N,6) n=none|5|8 dim=-1|0 norm=none|forward|ortho"},
      {"fft_irfft fft_hfft",
       "self=t(N,6) n=none|5|8 dim=-1|1 norm=none|forward|ortho"},
      {"fft_fft2 fft_ifft2 fft_rfft2 fft_fftn fft_ifftn fft_rfftn fft_ihfft2 fft_ihfftn",
       "self=t(3,4,6) s=none|3,5 dim=-2,-1 norm=none|forward|ortho"},
      {"fft_irfft2 fft_irfftn fft_hfft2 fft_hfftn",
       "self=t(3,4,6) s=none|3,5 dim=-2,-1 norm=none|forward|ortho"},
      {"fft_fftshift fft_ifftshift",
       "self=t(N,5) dim=none|1|0,1"},
      {"fft_fftfreq fft_rfftfreq",
       "n=5|6|1 d=1|0.5"},
      {"_fft_r2c",
       "self=t(3,6) dim=1|0,1 normalization=0|1|2 onesided=true|false"},
      {"_fft_c2r",
       "self=c(3,4) dim=1 normalization=0|1|2 last_dim_size=6|7"},
      {"_fft_c2c",
       "self=c(3,4) dim=1|0,1 normalization=0|1|2 forward=true|false"},
      {"stft",
       "self=t(2,32) n_fft=8 hop_length=none|4 win_length=none window=p(8) normalized=false|true onesided=none|true "
       "return_complex=true align_to_window=none center=false|true pad_mode=reflect"},
      {"stft.center",
       "self=t(2,32) n_fft=8 hop_length=none|4 win_length=none window=p(8) normalized=false|true onesided=none|true "
       "return_complex=true align_to_window=none center=false|true pad_mode=reflect"},
      {"istft",
       "self=c(2,5,9) n_fft=8 hop_length=none win_length=none window=P(8) center=true normalized=false onesided=none "
       "length=none return_complex=false"},
      {"_sobol_engine_draw",
       "quasi=l(4) n=3 sobolstate=l(4,30) dimension=4 num_generated=0 dtype=float"},
      {"_sobol_engine_ff",
       "self=l(4) n=3 sobolstate=l(4,30) dimension=4 num_generated=0"},
      {"_sobol_engine_initialize_state",
       "self=l(4,30) dimension=4"},
      {"_sobol_engine_scramble",
       "self=l(4,30) ltm=i2(4,30,30) dimension=4"},
  };
  // clang-format on
  return *rows;
}

}  // namespace lazuli::testing
