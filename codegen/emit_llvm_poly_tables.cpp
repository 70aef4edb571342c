#include "codegen/emit_llvm_poly_tables.h"

namespace lazuli::codegen {
namespace {

// Remez fits whose coefficients were rounded to floats; their relative error in the result is below 2^-27.
constexpr double kExpFloat[] = {1.0f, 1.0f, 0.49999994f, 0.166665196f, 0.041668389f, 0.00836877339f, 0.00138147012f};
constexpr double kExpm1Float[] = {0.5f, 0.166666657f, 0.0416662954f, 0.00833349768f, 0.00139447395f, 0.00019790337f};
constexpr double kTanhFloat[] = {-0.333333284f,   0.133331731f,   -0.0539504848f,   0.021773085f,
                                 -0.00856776908f, 0.00304372446f, -0.000818317931f, 0.00011547155f};
constexpr double kLogFloat[] = {0.333333105f,  -0.249999866f, 0.20002225f,   -0.166692585f, 0.142186388f,
                                -0.123841822f, 0.118731625f,  -0.117910817f, 0.069162555f};
constexpr double kErfFloat[] = {0.128379166f,   -0.376126289f,    0.112836182f,   -0.026855126f,
                                0.00519073382f, -0.000803076138f, 7.92035935e-05f};
constexpr double kErfcFloat[] = {1.12957835f, 0.633220136f, 0.108418196f, -0.025207933f, 0.00420440733f, -0.000441296841f, 2.16825338e-05f};

constexpr double kExpDouble[] = {  // exp_double, 2^-59.9, after its first two terms
    1.0,
    1.0,
    0.5,
    0.16666666666666677,
    0.041666666666666512,
    0.0083333333333216915,
    0.0013888888888962069,
    0.00019841269885965555,
    2.480158717309776e-05,
    2.7557244374410765e-06,
    2.7557402188255026e-07,
    2.510897891590995e-08,
    2.087546511686246e-09};
constexpr double kTanhDouble[] = {  // tanh_double, 2^-57.7
    -0.33333333333333331,    0.13333333333333283,     -0.05396825396822872,    0.021869488535486953,    -0.0088632355192545236,
    0.0035921279244887161,   -0.0014558335603312282,  0.00059002299560520965,  -0.00023911120406866645, 9.6860270633751484e-05,
    -3.9147142683964907e-05, 1.567536177723654e-05,   -6.0974946625216503e-06, 2.2105401639358905e-06,  -6.9737037290335659e-07,
    1.7338367397514323e-07,  -2.9245272527537839e-08, 2.4488106484257216e-09};
constexpr double kLogDouble[] = {  // log_double, 2^-57.2
    0.33333333333333348,  -0.25000000000000366,  0.19999999999993948,  -0.16666666666547894,  0.14285714286573861,  -0.1250000001454957,
    0.11111111058656316,  -0.099999990758686569, 0.090909104796727799, -0.083333675285518993, 0.07692305012185563,  -0.071420884217921948,
    0.066658991238608523, -0.062603688426438583, 0.059025009860815464, -0.054794598012693548, 0.050279458231554941, -0.051892591457193937,
    0.060528811749974709, -0.054095549238122508, 0.022482788629164859};
constexpr double kErfDouble[] = {  // erf_double, 2^-56.3
    0.12837916709551259,     -0.37612638903183754,    0.11283791670955118,     -0.026866170645128733,  0.0052239776254026423,
    -0.00085483270197482314, 0.00012055332758888322,  -1.4925641349268654e-05, 1.6461864516613295e-06, -1.6361070213924271e-07,
    1.4745213025956012e-08,  -1.1765137952232266e-09, 6.7505168548226511e-11};
constexpr double kErfcDouble[] = {  // erfc_double, 2^-55.6, but for its first term, which is erfc_0[1]
    2.6389675142347939,      0.84310725635850792,     0.041561098045974389,   -0.010033825435162323,   0.0019779030546664962,
    -0.00023732480272445897, -2.6270788623234327e-05, 2.7144558329781923e-05, -9.5881573956421506e-06, 2.0389150206146384e-06,
    -1.2803544112029748e-07, -1.0492282349845732e-07, 5.4499855811628798e-08, -1.5408479282686644e-08, 2.902733751120632e-09,
    -3.6202388746414255e-10, 2.7102401801257495e-11,  -9.2084141282397606e-13};
constexpr double kSinWideCoefficients[] = {  // sin_wide, 2^-35.5
    0.9999999999788528,      -0.16666666608802891,   0.0083333307196699971,
    -0.00019840832709398557, 2.7523965210024959e-06, -2.3868241893606405e-08};
constexpr double kTanWideCoefficients[] = {  // tan_wide, 2^-33.5
    1.0000000000842726,    0.33333331133741673,   0.13333427310921409,     0.053952895497443198, 0.021994134630970295,
    0.0083022578852926642, 0.0050436535414308302, -0.00064297081313905357, 0.0020590967557272419};
constexpr double kLog2WideCoefficients[] = {  // log2_wide, 2^-41.1
    1.4426950408893551,   -0.72134752042496009, 0.48089834658556285,  -0.36067376590265904, 0.2885390706784241,
    -0.24044872709887735, 0.20609526633966294,  -0.18035040888764056, 0.16042524301940136,  -0.14412611634584896,
    0.12914395787164287,  -0.11962595792757613, 0.12612444323961319,  -0.12352014835633521, 0.063180213729306323};
constexpr double kExp2WideCoefficients[] = {  // exp2_wide, 2^-34.5
    0.99999999996170275,   0.69314718072849191,   0.24022651197981074,    0.055504103531000805,
    0.0096180272662516834, 0.0013333922803872304, 0.00015469289313355035, 1.5201881205500926e-05};
constexpr double kAtanWideCoefficients[] = {  // atan_wide, 2^-36.6
    0.99999999999065747,   -0.33333333005397642,   0.19999980839438047,   -0.14285271449798015, 0.11105741688167722,
    -0.090516194966370034, 0.075039577872449512,   -0.06042620864054616,  0.043967000748540645, -0.026338323527935487,
    0.011646403171184767,  -0.0032782156882225997, 0.00043294372092662296};
constexpr double kErfWideCoefficients[] = {  // erf_wide, 2^-34.4
    1.1283791664870539,    -0.37612636528798238,    0.11283762798464748,  -0.026864531807310042,
    0.0052189026100658113, -0.00084568800631451059, 0.000110881356217084, -9.2003937739027213e-06};
constexpr double kErfcWideCoefficients[] = {  // erfc_wide, 2^-31.2
    2.6389675351734931,      0.84310690380296271,     0.041563185712162838,    -0.010040111905724021,   0.0019892066025990513,
    -0.00025054940667213133, -1.5753062564735944e-05, 2.1439906917177071e-05,  -7.6468508459269047e-06, 1.8326900932694865e-06,
    -3.2927874571704901e-07, 4.544131680484948e-08,   -4.8067205630397032e-09, 3.8305191923417908e-10,  -2.2247097557610033e-11,
    8.8817259618691238e-13,  -2.1777580044593553e-14, 2.4708199942085357e-16};
constexpr double kSinFloat[] = {  // sin_float, 2^-27.9
    0.166666552, -0.00833218917, 0.000195182874};
constexpr double kCosFloat[] = {  // cos_float, 2^-33.0, after its first two terms
    1.0, -0.5, 0.0416666456, -0.00138873095, 2.44323219e-05};
constexpr double kTanFloat[] = {  // tan_float, 2^-29.5
    0.333333492, 0.133326754, 0.0540589094, 0.0212862398, 0.0108273532, 9.83463251e-05, 0.00437266333};
constexpr double kAsinFloat[] = {  // asin_float, 2^-27.6
    0.166667521, 0.0749530867, 0.0454694144, 0.0241826288, 0.0421632268};
constexpr double kAtanFloat[] = {  // atan_float, 2^-28.5
    -0.333332986, 0.199985296, -0.142640144, 0.109508619, -0.0839921311, 0.0578790195, -0.031093752, 0.0108664352, -0.00178219471};
constexpr double kExp16thFloat[] = {  // exp_16th_float, 2^-29.2
    0.50001619695153954, 0.16667057742902644};
constexpr double kSinDouble[] = {  // sin_double, 2^-57.1
    0.16666666666666666,    -0.0083333333333333228,  0.00019841269841254793, -2.7557319214061775e-06,
    2.5052104881052528e-08, -1.6058363061397384e-10, 7.5785350267792448e-13};
constexpr double kCosDouble[] = {  // cos_double, 2^-59.7, after its first two terms
    1.0,
    -0.5,
    0.041666666666666595,
    -0.0013888888888873051,
    2.4801587288848129e-05,
    -2.7557314178149053e-07,
    2.0875700672575044e-09,
    -1.1358527152342155e-11};
constexpr double kSinhFloat[] = {  // sinh_float, 2^-34.3
    0.166666672, 0.00833317544, 0.000199740913};
constexpr double kCoshFloat[] = {  // cosh_float, 2^-33.3, after its first term
    0.5, 0.0416664593, 0.00139354519};
constexpr double kSinhDouble[] = {  // sinh_double, 2^-59.7
    0.16666666666666666,   0.0083333333333333367,  0.00019841269841253269,
    2.755731926508651e-06, 2.5052056867791531e-08, 1.6090798313421773e-10};
constexpr double kCoshDouble[] = {  // cosh_double, 2^-66.9, after its first term
    0.5, 0.041666666666666685, 0.0013888888888873622, 2.4801587348463623e-05, 2.7557252489355403e-07, 2.0921553798896876e-09};
constexpr double kLog2DoubleCoefficients[] = {  // log2_double, 2^-65.9
    0.57707801635558509, 0.4121985831113702,  0.32059889790791329, 0.26230819916342984,
    0.22195224047004522, 0.19240233751221145, 0.16843304936676667, 0.17295672204178034};

PolyTable FloatTable() {
  PolyTable t;
  t.exp_low = -104;
  t.exp_high = 89;
  t.exp2_low = -151;
  t.exp2_high = 129;
  t.expm1_low = -18;
  t.tanh_high = 9.02f;
  t.erf_small = 1;
  t.erf_high = 4;
  t.sinh_high = 89.45;
  t.linear = 5e-8f;
  t.ln2_high = 0.693145751953f;
  t.ln2_low = 1.42860677e-06f;
  t.log10_2_high = 0x1.344p-2;
  t.log10_2_low = 0x1.3509f8p-18;
  t.log2_e_high = 0x1.715476p+0;
  t.log2_e_low = 0x1.4ae0cp-26;
  t.log10_e_high = 0x1.bcb7b2p-2;
  t.log10_e_low = -0x1.5b235ep-27;
  t.ln2_rounded = 0x1.62e43p-1;
  t.ln2_rest = -0x1.05c61p-29;
  t.min_normal = 0x1p-126;
  t.half_pi[0] = 0x1.921fb4p+0;
  t.half_pi[1] = 0x1.444p-24;
  t.half_pi[2] = 0x1.68c234p-39;
  t.trig_high = 6144;
  t.sin = kSinFloat;
  t.cos = kCosFloat;
  t.tan = kTanFloat;
  t.asin = kAsinFloat;
  t.atan = kAtanFloat;
  t.exp_16th = kExp16thFloat;
  t.sinh = kSinhFloat;
  t.cosh = kCoshFloat;
  t.exp = kExpFloat;
  t.expm1 = kExpm1Float;
  t.tanh = kTanhFloat;
  t.log = kLogFloat;
  t.erf = kErfFloat;
  t.erfc = kErfcFloat;
  t.erfc_from = 0;
  t.erfc_0[0] = 0;
  t.erfc_0[1] = -0.000188034464f;
  return t;
}

PolyTable DoubleTable() {
  PolyTable t;
  t.exp_low = -746;
  t.exp_high = 710;
  t.exp2_low = -1076;
  t.exp2_high = 1025;
  t.expm1_low = -38;
  t.tanh_high = 19.1;
  t.erf_small = 0.85;
  t.erf_high = 5.95;
  t.sinh_high = 710.48;
  t.linear = 1e-16;
  t.ln2_high = 0x1.62e42fefa38p-1;
  t.ln2_low = 0x1.ef35793c7673p-45;
  t.log10_2_high = 0x1.34413509f78p-2;
  t.log10_2_low = 0x1.fef311f12b358p-46;
  t.log2_e_high = 0x1.71547652b82fep+0;
  t.log2_e_low = 0x1.777d0ffda0d24p-56;
  t.log10_e_high = 0x1.bcb7b1526e50ep-2;
  t.log10_e_low = 0x1.95355baaafad3p-57;
  t.ln2_rounded = 0x1.62e42fefa39efp-1;
  t.ln2_rest = 0x1.abc9e3b39803fp-56;
  t.min_normal = 0x1p-1022;
  t.half_pi[0] = 0x1.921fb54442d18p+0;
  t.half_pi[1] = 0x1.1a62633p-54;
  t.half_pi[2] = 0x1.45c06e0e68948p-86;
  t.trig_high = 0x1.8p21;
  t.sin = kSinDouble;
  t.cos = kCosDouble;
  t.sinh = kSinhDouble;
  t.cosh = kCoshDouble;
  t.exp = kExpDouble;
  t.expm1 = t.exp.drop_front(2);
  t.tanh = kTanhDouble;
  t.log = kLogDouble;
  t.erf = kErfDouble;
  t.erfc = kErfcDouble;
  t.erfc_from = 1;
  t.erfc_0[0] = 0x1.d97fbf27aa2a1p+0;
  t.erfc_0[1] = -0x1.5812ebf66cd18p-56;
  return t;
}

}  // namespace

const PolyTable& PolyTableFor(bool is_float) {
  static const PolyTable for_float = FloatTable(), for_double = DoubleTable();
  return is_float ? for_float : for_double;
}

const llvm::ArrayRef<double> kSinWide = kSinWideCoefficients;
const llvm::ArrayRef<double> kTanWide = kTanWideCoefficients;
const llvm::ArrayRef<double> kLog2Wide = kLog2WideCoefficients;
const llvm::ArrayRef<double> kExp2Wide = kExp2WideCoefficients;
const llvm::ArrayRef<double> kErfWide = kErfWideCoefficients;
const llvm::ArrayRef<double> kErfcWide = kErfcWideCoefficients;
const llvm::ArrayRef<double> kLog2Double = kLog2DoubleCoefficients;
const llvm::ArrayRef<double> kAtanWide = kAtanWideCoefficients;

}  // namespace lazuli::codegen
