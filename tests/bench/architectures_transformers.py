"""Small architectures of transformers."""

import torch
from torch import nn
from torch.nn import functional as F

from architecture_base import CLASSES, WORDS, model


class Logits(nn.Module):
    """A model of transformers as a function of tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


class Padded(Logits):
    def forward(self, padded_ids):
        return self.model(input_ids=padded_ids).logits


class EncoderDecoder(Logits):
    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids).logits


class LargePixels(Logits):
    def forward(self, x96):
        return self.model(pixel_values=x96).logits


class Pyramid(Logits):
    def forward(self, pixel_values):
        return self.model(pixel_values=pixel_values).logits.permute(0, 2, 3, 1)


class Audio(Logits):
    def forward(self, audio):
        return self.model(input_values=audio).logits


class Speech(Logits):
    def forward(self, mel, decoder_input_ids):
        return self.model(input_features=mel, decoder_input_ids=decoder_input_ids).logits


class TextAndImage(Logits):
    """CLIP's contrastive logits: the matching text of each image."""

    def forward(self, input_ids, pixel_values):
        out = self.model(input_ids=input_ids, pixel_values=pixel_values)
        labels = torch.arange(input_ids.shape[0])
        return F.cross_entropy(out.logits_per_image, labels) + F.cross_entropy(out.logits_per_text, labels)


class Forecast(Logits):
    def forward(self, series):
        return (self.model(past_values=series).prediction_outputs - series[:, :6]).square().mean()


def of_transformers(label, name, config, wrapper=Logits, labels="words", rates="normal", **sizes):
    def make():
        import transformers
        return wrapper(getattr(transformers, name)(getattr(transformers, config)(**sizes)))
    model(labels, rates, label)(make)


SMALL = dict(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2)
BERT = dict(SMALL, num_attention_heads=2, intermediate_size=32)
LLAMA = dict(SMALL, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
             use_cache=False, pad_token_id=0, bos_token_id=0, eos_token_id=1)
DECODER = dict(vocab_size=WORDS, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
               decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=16, use_cache=False,
               pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, scale_embedding=True)
IMAGE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
             num_labels=CLASSES)

of_transformers("gpt2", "GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                use_cache=False)
of_transformers("bert", "BertForMaskedLM", "BertConfig", max_position_embeddings=16, **BERT)
of_transformers("roberta", "RobertaForMaskedLM", "RobertaConfig", max_position_embeddings=18, **BERT)
of_transformers("distilbert", "DistilBertForMaskedLM", "DistilBertConfig", vocab_size=WORDS, dim=16, n_layers=2, n_heads=2,
                hidden_dim=32, max_position_embeddings=16)
of_transformers("albert", "AlbertForMaskedLM", "AlbertConfig", embedding_size=8, max_position_embeddings=16, **BERT)
of_transformers("electra", "ElectraForMaskedLM", "ElectraConfig", embedding_size=8, max_position_embeddings=16, **BERT)
of_transformers("deberta", "DebertaForMaskedLM", "DebertaConfig", relative_attention=True, pos_att_type=["c2p", "p2c"],
                max_position_embeddings=16, **BERT)
of_transformers("deberta_v2", "DebertaV2ForMaskedLM", "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"],
                position_buckets=4, max_position_embeddings=16, **BERT)
of_transformers("mpnet", "MPNetForMaskedLM", "MPNetConfig", Padded, max_position_embeddings=18, **BERT)
of_transformers("xlnet", "XLNetLMHeadModel", "XLNetConfig", vocab_size=WORDS, d_model=16, n_layer=2, n_head=2, d_inner=32)
of_transformers("fnet", "FNetForMaskedLM", "FNetConfig", max_position_embeddings=16, **SMALL, intermediate_size=32)
of_transformers("convbert", "ConvBertForMaskedLM", "ConvBertConfig", embedding_size=16, conv_kernel_size=3,
                max_position_embeddings=16, **BERT)
of_transformers("squeezebert", "SqueezeBertForMaskedLM", "SqueezeBertConfig", embedding_size=16, max_position_embeddings=16,
                **BERT, q_groups=2, k_groups=2, v_groups=2, intermediate_groups=2, output_groups=2)
of_transformers("modernbert", "ModernBertForMaskedLM", "ModernBertConfig", max_position_embeddings=16, local_attention=4,
                global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1,
                **BERT)
of_transformers("t5", "T5ForConditionalGeneration", "T5Config", EncoderDecoder, vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32,
                num_layers=2, num_heads=2, use_cache=False)
of_transformers("bart", "BartForConditionalGeneration", "BartConfig", EncoderDecoder, **DECODER)
of_transformers("pegasus", "PegasusForConditionalGeneration", "PegasusConfig", EncoderDecoder, **DECODER)
of_transformers("switch_transformers", "SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", EncoderDecoder,
                vocab_size=WORDS, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=2, num_experts=4,
                num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, expert_capacity=8, router_jitter_noise=0.0,
                use_cache=False)
of_transformers("llama", "LlamaForCausalLM", "LlamaConfig", **LLAMA)
of_transformers("mistral", "MistralForCausalLM", "MistralConfig", sliding_window=4, **LLAMA)
of_transformers("mixtral", "MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **LLAMA)
of_transformers("qwen2", "Qwen2ForCausalLM", "Qwen2Config", **LLAMA)
of_transformers("qwen3", "Qwen3ForCausalLM", "Qwen3Config", head_dim=4, **LLAMA)
of_transformers("gemma2", "Gemma2ForCausalLM", "Gemma2Config", head_dim=4, sliding_window=4, query_pre_attn_scalar=4, **LLAMA)
of_transformers("phi", "PhiForCausalLM", "PhiConfig", partial_rotary_factor=0.5, **LLAMA)
of_transformers("phi3", "Phi3ForCausalLM", "Phi3Config", **LLAMA)
of_transformers("olmoe", "OlmoeForCausalLM", "OlmoeConfig", num_experts=4, num_experts_per_tok=2, **LLAMA)
of_transformers("deepseek_v3", "DeepseekV3ForCausalLM", "DeepseekV3Config", n_routed_experts=4, n_group=2, topk_group=1,
                num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1, q_lora_rank=8, kv_lora_rank=8,
                qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=4, **(LLAMA | dict(num_key_value_heads=4)))
of_transformers("falcon", "FalconForCausalLM", "FalconConfig", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2,
                num_attention_heads=2, use_cache=False, bos_token_id=0, eos_token_id=1)
of_transformers("bloom", "BloomForCausalLM", "BloomConfig", vocab_size=WORDS, hidden_size=16, n_layer=2, n_head=2,
                use_cache=False,
                bos_token_id=0, eos_token_id=1)
of_transformers("mpt", "MptForCausalLM", "MptConfig", vocab_size=WORDS, d_model=16, n_layers=2, n_heads=2, max_seq_len=16,
                use_cache=False)
of_transformers("opt", "OPTForCausalLM", "OPTConfig", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, ffn_dim=32,
                num_attention_heads=2, max_position_embeddings=16, word_embed_proj_dim=16, use_cache=False)
of_transformers("gpt_neo", "GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=WORDS, hidden_size=16, num_layers=2, num_heads=2,
                attention_types=[[["global", "local"], 1]], window_size=4, max_position_embeddings=16, use_cache=False,
                bos_token_id=0, eos_token_id=1)
of_transformers("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", max_position_embeddings=16, use_cache=False,
                bos_token_id=0, eos_token_id=1, **BERT)
of_transformers("gptj", "GPTJForCausalLM", "GPTJConfig", vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                rotary_dim=4, use_cache=False, bos_token_id=0, eos_token_id=1)
of_transformers("mamba", "MambaForCausalLM", "MambaConfig", state_size=4, use_cache=False, **SMALL)
of_transformers("rwkv", "RwkvForCausalLM", "RwkvConfig", vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, context_length=16,
                attention_hidden_size=16, intermediate_size=32, use_cache=False)
of_transformers("segformer", "SegformerForSemanticSegmentation", "SegformerConfig", Pyramid, "mask32", "normal", depths=[1, 1,
                1, 1],
                hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16, num_labels=5)
of_transformers("levit", "LevitForImageClassification", "LevitConfig", LargePixels, "class", "tiny", image_size=96, patch_size=16,
                hidden_sizes=[16, 16, 24], num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8], num_labels=CLASSES)
of_transformers("wav2vec2", "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", Audio, "class", conv_dim=(8, 8, 8),
                conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4), num_feat_extract_layers=3, num_conv_pos_embeddings=8,
                num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.0, apply_spec_augment=False, num_labels=CLASSES,
                classifier_proj_size=16, **BERT)
of_transformers("whisper", "WhisperForConditionalGeneration", "WhisperConfig", Speech, num_mel_bins=20, max_source_positions=20,
                max_target_positions=16, apply_spec_augment=False, begin_suppress_tokens=None,
                **(DECODER | dict(scale_embedding=False)))
of_transformers("clip", "CLIPModel", "CLIPConfig", TextAndImage, "loss", projection_dim=16,
                text_config=dict(BERT, max_position_embeddings=16, bos_token_id=0, eos_token_id=49, pad_token_id=1),
                vision_config=dict(IMAGE))
of_transformers("patchtst", "PatchTSTForPrediction", "PatchTSTConfig", Forecast, "loss", "normal", num_input_channels=4,
                context_length=24,
                patch_length=4, patch_stride=4, d_model=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=32,
                prediction_length=6, loss="mse", scaling=None)
