// Reports all unsupported nodes in one run, grouped by cause:
//
//     m.onnx:/nms: error: NonMaxSuppression is not supported (2 nodes)
//     m.onnx:/nms: note: NonMaxSuppression, opset 13, of f32[1,100,4], f32[1,8,100]
//     m.onnx:/nms_1: note: NonMaxSuppression, opset 13, of f32[1,100,4], f32[1,8,100]
//     hint: …
//
// Consequences of a reported error are not reported: see `poisoned` in onnx_walk.h.

#include "frontend/onnx_walk.h"

void onnx_problem(Import *im, const Loc *loc, const char *cause, const char *hint,
                  const char *detail) {
  vec_push(im->a, &im->problems, (Problem){loc, cause, hint, detail});
}

bool onnx_report(Import *im) {
  typedef struct Group {
    int first, last, n;
  } Group;
  NameMap names = {.arena = im->a};
  Vec(Group) groups = {0};
  int *next = arena_array(im->a, int, im->problems.n); // of the same group; 0: none
  // Problems with the same cause form a list, in the order of their first occurrence.
  for (int i = 0; i < im->problems.n; i++) {
    if (name_map_add(&names, im->problems.at[i].cause, groups.n)) {
      vec_push(im->a, &groups, (Group){i, i, 1});
      continue;
    }
    Group *g = &groups.at[name_map_find(&names, im->problems.at[i].cause)];
    next[g->last] = i;
    g->last = i;
    g->n++;
  }
  for (int k = 0; k < groups.n; k++) {
    const Problem *p = &im->problems.at[groups.at[k].first];
    // One error per cause, at its first node; notes name the others.
    if (groups.at[k].n == 1)
      diag_error(im->d, p->loc, "%s", p->cause);
    else
      diag_error(im->d, p->loc, "%s (%d nodes)", p->cause, groups.at[k].n);
    for (int i = groups.at[k].first, more = 1; more; more = next[i], i = next[i])
      if (im->problems.at[i].detail)
        diag_note(im->d, im->problems.at[i].loc, "%s", im->problems.at[i].detail);
    if (p->hint) diag_hint(im->d, "%s", p->hint);
  }
  return im->problems.n == 0;
}
