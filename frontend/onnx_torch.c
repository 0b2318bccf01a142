// The call of PyTorch that a node was exported from, and the module that made the call.
//
// The exporter (dynamo=True) keeps both in the metadata of the node, names of modules with the
// node's own last, and the call as torch.fx prints it:
//
//     ['', 'layer1', 'layer1.bn', 'batch_norm']
//     %bn : [num_users=3] = call_function[target=torch.ops.aten._native_batch_norm_legit_functional
//     .default](args = (%x, %weight, %bias, %mean, %var, True, 0.1, 1e-05), kwargs = {})
//
// ONNX lacks these facts of the call: the mode of a BatchNormalization, model.train() or eval();
// the padding_idx of an Embedding; that an Identity is x.detach(); the choice of max.dim among
// equal values.

#include <string.h>

#include "frontend/onnx_walk.h"

// Returns the end of the text from `from` to a character of `ends` outside of brackets and quotes.
static const char *find_end(const char *from, const char *ends) {
  int depth = 0;
  char quote = 0;
  for (; *from; from++) {
    // Brackets within quotes do not count.
    if (quote) {
      if (*from == quote) quote = 0;
      continue;
    }
    if (depth == 0 && strchr(ends, *from)) return from;
    if (*from == '\'' || *from == '"') quote = *from;
    if (strchr("([{", *from)) depth++;
    if (strchr(")]}", *from)) depth--;
  }
  return NULL;
}

bool node_by_torch(const Node *n) {
  return str_equal(onnx_str(onnx_model(n->im->file)->producer_name), "pytorch");
}

bool node_from_torch(const Node *n, const char *function) {
  const char *target = strstr(onnx_str(n->proto->doc_string), "[target=");
  const char *end = target ? strchr(target, ']') : NULL;
  const char *at = target ? strstr(target, function) : NULL;
  return at && end && at < end;
}

bool onnx_for_inference(const Import *im) {
  const Onnx__GraphProto *graph = onnx_model(im->file)->graph;
  bool norms = false;
  for (size_t i = 0; i < graph->n_node; i++) {
    const Onnx__NodeProto *node = graph->node[i];
    const char *op = onnx_str(node->op_type);
    // PyTorch gives a Dropout the third operand in training only.
    if (str_equal(op, "Dropout") && node->n_input > 2) return false;
    if (!str_equal(op, "BatchNormalization")) continue;
    for (size_t k = 0; k < node->n_attribute; k++) {
      const Onnx__AttributeProto *a = node->attribute[k];
      if (!str_equal(onnx_str(a->name), "training_mode")) continue;
      if (a->i) return false;
      norms = true;
    }
  }
  return norms;
}

const char *node_torch_arg(const Node *n, int i) {
  static const char open[] = "](args = (";
  const char *at = strstr(onnx_str(n->proto->doc_string), open);
  if (!at) return NULL;
  for (at += strlen(open);; at++) {
    while (*at == ' ')
      at++;
    // Arguments are separated by commas outside of brackets.
    const char *end = find_end(at, ",)");
    if (!end || end == at) return NULL;
    if (i-- == 0) return str_copy_n(n->a, at, (size_t)(end - at));
    if (*end == ')') return NULL;
    at = end;
  }
}

const char *onnx_module_name(Arena *a, const Onnx__NodeProto *node) {
  const char *scopes = onnx_str(node->doc_string), *name = onnx_str(node->name);
  if (*scopes == '[') {
    // The last name is the node's own; the one before it is the module's.
    const char *end = scopes + strcspn(scopes, "\n"), *last = NULL, *own = NULL;
    for (const char *at = scopes; at < end; at++) {
      if (*at != '\'' || (at[-1] != '[' && at[-1] != ' ')) continue;
      last = own;
      own = at + 1;
    }
    return last ? str_copy_n(a, last, strcspn(last, "'")) : NULL;
  }
  // The other exporter (dynamo=False): /layer1/bn/BatchNormalization
  const char *slash = strrchr(name, '/');
  if (*name != '/' || slash == name) return NULL;
  char *module = arena_copy(a, name + 1, (size_t)(slash - name));
  module[slash - name - 1] = 0;
  for (char *at = module; *at; at++)
    if (*at == '/') *at = '.';
  return module;
}
