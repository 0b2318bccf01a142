-- Context parallelism by all-to-all (Jacobs et al. 2023, DeepSpeed-Ulysses): tokens are sharded, except
-- in attention, where heads are.
--
-- An all_to_all before attention and one after it change the layout of q, k, v and y. Each rank then
-- has all tokens of its heads, so any mask will do; ranks must divide the heads of k and v.

function step(axis)
  apply("tokens", axis)
  for _, op in ipairs(ops("attention")) do
    local major = op:attribute("seq_major")
    local heads = op:letter(2, major and 2 or 1)
    if can(op, heads, axis) then
      op_trans(op, heads, axis)
      -- The product after it would sum over heads, which are columns there: it has its tokens.
      for _, e in ipairs(op.part == "forward" and flow(op, op:letter(1, major and 2 or 1), axis) or {}) do
        local tokens = e.op.outputs[1].ndim > 2 and e.op:result_letter(1, 1)
        if tokens and tokens ~= e.letter and can(e.op, tokens, axis) then op_trans(e.op, tokens, axis) end
      end
    else
      local kv = op.inputs[2].shape[major and 3 or 2]
      refuse(op, ("attention with %d head%s of keys cannot be split by heads over %d ranks; cp is a ring, which splits "
        .. "tokens"):format(kv, kv == 1 and "" or "s", size(axis)))
    end
  end
end
