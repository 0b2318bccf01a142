// Attention of a node, from its parts: of Attention, and of com.microsoft's operators.

#ifndef FRONTEND_ONNX_ATTENTION_H
#define FRONTEND_ONNX_ATTENTION_H

#include "frontend/onnx_node.h"

// The scores that a node may have as a result: `qk_matmul_output_mode`.
typedef enum AttentionScores {
  SCORES_scaled,
  SCORES_capped,
  SCORES_masked,
  SCORES_probabilities,
} AttentionScores;

typedef struct Attention {
  Value *q, *k, *v; // (b, h, t, d), (b, g, s, d), (b, g, s, e); h is a multiple of g
  Value *mask;      // bool, true for visible keys, or an addend of the scores; broadcast to
               // (b, h, t, s) but for the last dimension, beyond which keys are hidden; or NULL
  Value *lengths; // (b) the number of valid keys; the last query is at the last of them; or NULL
  int64_t past;   // the position of query 0, without lengths
  bool causal;    // a query sees no keys after its position
  int64_t left, right;    // nor keys further from it than these; -1: no limit
  double scale, softcap;  // softcap 0: none
  DType softmax;          // the type of the softmax, f32 at least unless it is 16 bits
  AttentionScores scores; // of *out_scores
} Attention;

// (b, t, h d) to (b, h, t, d), which x may be already; and back.  NULL after a report.
Value *attention_split_heads(Node *n, Value *x, int64_t heads);
Value *attention_join_heads(Node *n, Value *y);

// Repeats x (b, h / r, s, d), so that r consecutive ones of h heads have their own.
Value *attention_repeat_heads(Node *n, Value *x, int64_t heads);

// Returns x (b, h, s, d) after `past`, which may be NULL, along s, and sets the length of `past`.
// NULL after a report.
Value *attention_after_past(Node *n, Value *past, Value *x, int64_t *out_past);

// Returns y (b, h, t, e), and the scores (b, h, t, s) unless out_scores is NULL.  NULL after a
// report.
Value *attention_build(Node *n, const Attention *a, Value **out_scores);

#endif
