// The parts of a model that only some plans are for: the space (space.h) has points of expert,
// context and vocabulary parallelism if the model has their subject.
//
//     Mixtral 8x7B     8 experts, with 45 of 46.7 billion weights; attention over 4,096 tokens
//     Llama-3 8B       attention over 8,192 tokens; tables of words with 0.13 of the weights

#ifndef MODEL_FEATURES_H
#define MODEL_FEATURES_H

#include "ir/op.h"

typedef struct ModelFeatures {
  int experts;           // that rows are routed to, the common divisor of all mixtures; 0: none
  double expert_weights; // elements of their matrices
  int64_t tokens;        // of queries and keys, the fewest of all attentions; 0: none
  int64_t key_heads;     // the common divisor of all attentions
  bool masked;           // some have a mask other than the causal one, which no ring has
  bool attends;          // attentions or softmaxes, of which recompute_attention has the inner part
  bool sequences;        // norms have a dimension of tokens, along which sp splits them
  double words_share;    // of the elements of weights, of tables of words and products of logits
} ModelFeatures;

// The rows of the largest table of words; 0: there is none. Also of a graph with backward.
int64_t graph_words(const Graph *g);

// By op id: whether it looks up rows of a table of words, or computes logits.
const bool *ops_of_words(const Module *front, Arena *a);

// Reads a typed module after `raise`.
ModelFeatures model_features(const Module *front, Arena *a);

#endif
