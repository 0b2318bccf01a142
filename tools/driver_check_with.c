// --check-with 1: the reference of the executable, FILE.check, for its --check-against.
//
//     nnaot m.onnx -g 4 --plan tp --check-with 1 -o train_rank      train_rank and train_rank.check
//     ./train_rank --check-against train_rank.check --input …
//
// It is made of the model's program that the proof of the plan began with, so plans that transform
// the model, the loss, the type and the batch agree.  Its pipeline has the passes without which
// there is no executable, and no others: they are under test.  Every elementwise op is a kernel of
// its own, so that all values are in memory.

#include "driver.h"
#include "ir/model_values.h"

const char *check_output(const Settings *s, Arena *a) {
  return str_format(a, "%s.check", s->output);
}

bool write_check(const Settings *s, const Compiled *c, Arena *a, Diag *d) {
  const ModelValues *values = c->m->model_values;
  if (!values) {
    diag_error(
        d, NULL,
        "--check-with: no proof of the plan gives the meaning of its values, as of stages that "
        "update their weights in every micro-batch, or of --passes without shard");
    if (is_text(s)) diag_hint(d, "of a module that is distributed already: --prove=MODEL");
    return false;
  }
  const char *target = target_info[s->backend.target.target].name;
  const char *pipeline = str_format(a,
                                    "shard(mesh=\"acc:1:time\" plan=\"dp\" unlimited=true "
                                    "target=\"%s\"),comm,legalize_types(target=\"%s\"),"
                                    "fuse(each=true),plan_memory(target=\"%s\")",
                                    target, target, target);
  PipelineOptions run = {.verify_each = s->run.verify_each, .bisect_limit = -1, .keep_model = true};
  Compiled one = *c;
  one.m = module_clone(values->program);
  one.choice.name = "dp";
  Settings alone = *s;
  alone.output = check_output(s, a);
  alone.ranks = 1;
  alone.split_ranks = false;
  bool ok = pipeline_run(one.m, pipeline, &run, d) && write_executable(&alone, &one, a, d);
  module_free(one.m);
  return ok || diag_error(d, NULL, "this is of '%s', which --check-with asks for", alone.output);
}
