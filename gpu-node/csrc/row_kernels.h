// Operations on single rows: norm, activation, residual, rotary embedding, rounding, argmax.
#pragma once

#include "simd.h"

namespace treadle::TREADLE_LEVEL {

TREADLE_INLINE void put(RowOut out, int column, Floats value) {
  if (out.narrow != nullptr) {
    store_bf16(out.narrow + column, value);
  } else {
    store(out.wide + column, value);
  }
}

TREADLE_INLINE void put(RowOut out, int column, float value) {
  if (out.narrow != nullptr) {
    out.narrow[column] = to_bf16(value);
  } else {
    out.wide[column] = value;
  }
}

// Rows of a buffer are padded to whole panels, so vectors may run over the last column; single numbers are for places
// where a neighbour lies behind it.
TREADLE_INLINE int whole_vectors(int num_columns) { return (num_columns + kLanes - 1) / kLanes * kLanes; }

static void rms_norm(const float* x, const float* weight, float epsilon, int num_columns, RowOut out) {
  Floats squares{};
  int column = 0;
  for (; column + kLanes <= num_columns; column += kLanes) {
    const Floats value = load<Floats>(x + column);
    squares += value * value;
  }
  float sum = total(squares);
  for (; column < num_columns; ++column) sum += x[column] * x[column];
  const float scale = 1.0F / __builtin_sqrtf(sum / static_cast<float>(num_columns) + epsilon);
  for (column = 0; column < whole_vectors(num_columns); column += kLanes)
    put(out, column, load<Floats>(weight + column) * (load<Floats>(x + column) * scale));
}

static void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, int num_columns,
                       RowOut out) {
  const float count = static_cast<float>(num_columns);
  Floats sums{}, squares{};
  int column = 0;
  for (; column + kLanes <= num_columns; column += kLanes) sums += load<Floats>(x + column);
  float sum = total(sums);
  for (; column < num_columns; ++column) sum += x[column];
  const float mean = sum / count;
  for (column = 0; column + kLanes <= num_columns; column += kLanes) {
    const Floats centred = load<Floats>(x + column) - mean;
    squares += centred * centred;
  }
  float square = total(squares);
  for (; column < num_columns; ++column) square += (x[column] - mean) * (x[column] - mean);
  const float scale = 1.0F / __builtin_sqrtf(square / count + epsilon);
  for (column = 0; column < whole_vectors(num_columns); column += kLanes) {
    const Floats normed = (load<Floats>(x + column) - mean) * scale;
    put(out, column, load<Floats>(weight + column) * normed + load<Floats>(bias + column));
  }
}

static void relu(const float* x, int num_columns, RowOut out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes) {
    const Floats value = load<Floats>(x + column);
    put(out, column, value < 0.0F ? Floats{} : value);
  }
}

// The approximation with tanh: (1 + tanh(u)) / 2 is 1 / (1 + e ** -2u).
static void gelu(const float* x, int num_columns, RowOut out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes) {
    const Floats value = load<Floats>(x + column);
    const Floats u = 0.7978845608F * (value + 0.044715F * (value * value * value));
    put(out, column, value / (1.0F + exponential(-2.0F * u)));
  }
}

// As it is defined: x / 2 * (1 + erf(x / sqrt 2)). The error function by its approximation with five terms, which is off
// by 1.5e-7 at most (Abramowitz, Stegun, 1964, 7.1.26); the sign is taken first, so that nothing near 0 is a difference.
TREADLE_INLINE Floats erf_gelu(Floats value) {
  const Floats size = (value < 0.0F ? -value : value) * 0.7071067812F;
  const Floats t = 1.0F / (1.0F + 0.3275911F * size);
  Floats rest = t * 1.061405429F - 1.453152027F;
  rest = rest * t + 1.421413741F;
  rest = rest * t - 0.284496736F;
  rest = rest * t + 0.254829592F;
  rest = rest * t * exponential(-size * size);  // 1 - erf of the size
  return 0.5F * value * (value < 0.0F ? rest : 2.0F - rest);
}

static void erf_gelu(const float* x, int num_columns, RowOut out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes)
    put(out, column, erf_gelu(load<Floats>(x + column)));
}

static void tanh(const float* x, int num_columns, RowOut out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes)
    put(out, column, 1.0F - 2.0F / (1.0F + exponential(2.0F * load<Floats>(x + column))));
}

static void silu_mul(const float* gate, const float* up, int num_columns, RowOut out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes)
    put(out, column, silu(load<Floats>(gate + column)) * load<Floats>(up + column));
}

static void erf_gelu_mul(const float* gate, const float* up, int num_columns, RowOut out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes)
    put(out, column, erf_gelu(load<Floats>(gate + column)) * load<Floats>(up + column));
}

static void add(const float* a, const float* b, int num_columns, float* out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes)
    store(out + column, load<Floats>(a + column) + load<Floats>(b + column));
}

static void round(const float* x, int num_columns, Bf16* out) {
  for (int column = 0; column < whole_vectors(num_columns); column += kLanes)
    store_bf16(out + column, load<Floats>(x + column));
}

// Turns the pairs (i, i + head_dim / 2) of each head; `angles` are cosines, then sines.
static void rope(float* x, const float* angles, int num_heads, int head_dim) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    int i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const Floats first = load<Floats>(x + i), second = load<Floats>(x + half + i);
      const Floats cosine = load<Floats>(angles + i), sine = load<Floats>(angles + half + i);
      store(x + i, first * cosine - second * sine);
      store(x + half + i, second * cosine + first * sine);
    }
    for (; i < half; ++i) {
      const float first = x[i], second = x[half + i];
      x[i] = first * angles[i] - second * angles[half + i];
      x[half + i] = second * angles[i] + first * angles[half + i];
    }
  }
}

static int argmax(const float* x, int num_columns) {
  Floats most = broadcast(-__builtin_inff());
  Floats zeros{};  // x * 0 is 0, or NaN where x is not finite
  int column = 0;
  for (; column + kLanes <= num_columns; column += kLanes) {
    const Floats value = load<Floats>(x + column);
    most = larger(value, most);
    zeros += value * 0.0F;
  }
  float best = largest(most), rest = total(zeros);
  for (; column < num_columns; ++column) {
    best = x[column] > best ? x[column] : best;
    rest += x[column] * 0.0F;
  }
  if (rest != 0.0F) return -1;
  for (column = 0; x[column] != best;) ++column;
  return column;
}

}  // namespace treadle::TREADLE_LEVEL
