-- Shards the embedding, the logits product and the loss along the vocabulary, and nothing else.
--
--     h = gather(table, words)     table {S(0)}: a rank looks up the words of its shard; others give zeros
--     x = h W                      W {S(1)}: every rank has the logits of its shard of the vocabulary
--     loss(x, label)               exchanges two numbers per row, and no logits
--
-- A vocabulary that is no multiple of the ranks is padded, as in Megatron-LM: the loss leaves the
-- padding out, and files hold the words of the model only.
--
-- The number of "words:8" is the ranks to pad for, if an applying program shards along other axes too.

local over

function numbers(list)
  over = list[1].n
end

-- Returns the product that computes the logits, and the elementwise ops after it, such as the
-- addition of a bias.
local function maker(logits)
  local op, behind = logits.source.def, {}
  while op and op.elementwise do
    table.insert(behind, op)
    op = op.inputs[1].source.def
  end
  return op, behind
end

-- Returns the ops that compute losses from logits: cross entropies, or the first op of one that is
-- split along another axis.
local function losses()
  local list = ops("cross_entropy", "forward")
  for _, op in ipairs(ops("lse_parts", "forward")) do
    local def = op.inputs[1].def
    if not def or def.kind ~= "lse_parts" then table.insert(list, op) end
  end
  return list
end

-- Whether the op looks up words in a weight. Positions and relative distances are constants, and
-- their tables no vocabularies.
local function looks_up(op)
  return op.inputs[1].source.role == "weight" and op.inputs[2].source.role ~= "weight" and op:attribute("axis") == 0
end

-- The multiple to which `words` are padded: large shards get a multiple of 128 words, as Megatron-LM's
-- default, for the speed of products. Few words are padded for the ranks of the program alone. Nil: they
-- are fewer still, and stay whole.
local function multiple(words)
  for _, n in ipairs({ over or size(), size() }) do
    if words % n == 0 then return end
    local unit = words >= 8 * 128 * n and 128 * n or n
    if 8 * (-words % unit) <= words then return unit end
  end
end

function model()
  for _, op in ipairs(ops("gather")) do
    local unit = looks_up(op) and multiple(op.inputs[1].shape[1])
    if unit then pad(op, unit) end
  end
  for _, op in ipairs(ops("cross_entropy")) do
    local logits = op.inputs[1]
    local product = maker(logits)
    local unit = product and product.kind == "linear" and multiple(logits.shape[logits.ndim])
    if unit then pad(product, unit) end
  end
end

-- Warns of a vocabulary that stays whole on each rank.
local function report(what, op, words, axis)
  if graph() == "train" and words % size(axis) ~= 0 then
    replicated(op, ("the %s is replicated over '%s': %d words on %d ranks"):format(what, axis, words, size(axis)))
  end
end

function step(axis)
  for _, op in ipairs(ops("gather", "forward")) do
    local words = op:letter(1, 0)
    if looks_up(op) and can(op, words, axis) then
      op_trans(op, words, axis)
    elseif looks_up(op) then
      report("table of words", op, op.inputs[1].shape[1], axis)
    end
  end
  for _, op in ipairs(losses()) do
    local logits = op.inputs[1]
    local product, behind = maker(logits)
    local letter = product and product.kind == "linear" and product:result_letter(1, -1)
    local columns = logits.shape[logits.ndim]
    -- Each part of a loss that is split already is split again.
    if op.kind == "lse_parts" then columns = columns // op.outputs[1].shape[logits.ndim] end
    if letter and product:split(axis) ~= letter
      and product.outputs[1].shape[product.outputs[1].ndim] == logits.shape[logits.ndim]
      and columns % size(axis) == 0 and can(product, letter, axis) then
      split_loss(op, axis)
      op_trans(product, letter, axis)
      for _, o in ipairs(behind) do op_trans(o, o:result_letter(1, -1), axis) end
    elseif letter then
      report("product of the logits", product, columns, axis)
    end
  end
end
