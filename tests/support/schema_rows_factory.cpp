// Factories and random numbers.
#include "tests/support/schema_ops.h"

namespace lazuli::testing {

const SchemaRows& FactoryRows() {
  // clang-format off
  static const auto* rows = new SchemaRows{
      {"arange",
       "end=7|5 start=1|0 step=2|1 dtype=none"},
      {"linspace logspace",
       "start=0|1 end=5|3 steps=5|1|0 base=2 dtype=none"},
      {"linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor logspace.Tensor_Tensor "
       "logspace.Tensor_Scalar logspace.Scalar_Tensor linspace.Tensor_Tensor_out linspace.Tensor_Scalar_out "
       "linspace.Scalar_Tensor_out logspace.Tensor_Tensor_out logspace.Tensor_Scalar_out logspace.Scalar_Tensor_out",
       "start=t() end=t() steps=5|1 base=2 dtype=none"},
      {"linspace.Tensor_Scalar logspace.Tensor_Scalar linspace.Tensor_Scalar_out logspace.Tensor_Scalar_out",
       "start=t() end=3 steps=5|1 base=2 dtype=none"},
      {"linspace.Scalar_Tensor logspace.Scalar_Tensor linspace.Scalar_Tensor_out logspace.Scalar_Tensor_out",
       "start=1 end=t() steps=5|1 base=2 dtype=none"},
      {"multinomial",
       "self=p(N,5) num_samples=3|2 replacement=false|true"},
      {"bernoulli",
       "self=u p=0.5 generator=none|new"},
      {"bernoulli.Tensor bernoulli_.Tensor bernoulli.Tensor_out",
       "self=t(N,4) p=P(N,4)"},
      {"bernoulli.Tensor bernoulli_.Tensor bernoulli.Tensor_out",
       "self=t(N,4) p=u(N,4)"},
      {"binomial",
       "count=I9(N,4) prob=u(N,4)"},
      {"poisson _standard_gamma",
       "self=p"},
      {"_standard_gamma_grad",
       "self=p output=p"},
      {"_sample_dirichlet",
       "self=p(N,4)"},
      {"_dirichlet_grad",
       "x=u(N,4) alpha=p(N,4) total=p(N,4)"},
      {"normal.Tensor_Tensor normal.Tensor_float normal.Tensor_float_out normal.Tensor_Tensor_out",
       "mean=t std=p"},
      {"normal.float_Tensor normal.float_Tensor_out",
       "mean=0.5 std=p"},
      {"normal.Tensor_float normal.Tensor_float_out",
       "mean=t std=1.5"},
      {"uniform",
       "self=t from=0|-1 to=1|2"},
      {"random.from",
       "self=t from=0|-2 to=9|5"},
      {"random.to",
       "self=t to=9|5"},
      {"exponential log_normal geometric cauchy normal",
       "self=t lambd=1|2 mean=0.5 std=1.5 p=0.5|0.25 median=0 sigma=1"},
      {"randint randint_like",
       "self=t high=9|5 low=0|-2 size=3,4|5"},
      {"randint_like.Tensor randint_like.Tensor_generator randint_like.Tensor_out randint_like.Tensor_generator_out",
       "self=t high=w()"},
      {"randint_like.Tensor randint_like.Tensor_generator randint_like.Tensor_out randint_like.Tensor_generator_out",
       "self=t(3,4) high=w()"},
      {"eye",
       "n=3|0|4 m=4|2"},
      {"full",
       "size=3,4|()|2,0 fill_value=2|0.5|true names=none"},
      {"range",
       "start=0|1 end=5|4 step=1|2"},
      {"randperm",
       "n=5|1|0"},
      {"zeros.names ones.names empty.names rand.names randn.names full.names zeros.names_out ones.names_out "
       "empty.names_out rand.names_out randn.names_out full.names_out rand.generator_with_names "
       "randn.generator_with_names rand.generator_with_names_out randn.generator_with_names_out",
       "size=2,3 names=dimname::A,dimname::B|none fill_value=2 memory_format=none"},
      {"new_zeros new_ones new_empty new_full zeros ones empty rand randn _efficientzerotensor",
       "self=t size=3,4|()|2,0|5 fill_value=2|0.5"},
  };
  // clang-format on
  return *rows;
}

}  // namespace lazuli::testing
