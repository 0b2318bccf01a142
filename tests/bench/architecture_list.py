"""Small architectures for architectures.py: of torchvision, timm, transformers, and modules written here.

Each is a function that returns a module in training mode without dropout.  forward() takes tensors with the batch first and
returns logits with the classes last, or a scalar, the loss.  Its arguments' names choose the data (DATA).  Weights are
random: only the definitions of the libraries are read.
"""

import math
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

BATCH, TOKENS, WORDS, CLASSES, SIDE = 4, 12, 50, 10, 64
ROWS = 3 * BATCH  # of data: each row comes three or four times in ten steps

# Learning rates of SGD and AdamW.  Normalisation over a batch of 4 is ill-conditioned: with larger rates PyTorch in f32
# is 1e-2 from PyTorch in f64 after ten steps.
RATES = {"normal": (0.05, 1e-3), "careful": (1e-3, 1e-5), "tiny": (1e-6, 1e-6)}
MODELS = {}  # name: (constructor, rates, kind of labels)


def model(labels="class", rates="normal", name=None):
    def add(make):
        MODELS[name or make.__name__] = make, RATES[rates], labels
        return make
    return add


# -- Data ------------------------------------------------------------------------------------

def words(*shape):
    return lambda rng: rng.integers(2, WORDS, (ROWS, *shape))


def padded(rng):
    """Every second row ends with padding, token 1."""
    ids = words(TOKENS)(rng)
    ids[::2, 9:] = 1
    return ids


def normal(*shape):
    return lambda rng: rng.standard_normal((ROWS, *shape)).astype(np.float32)


def binary(*shape):
    return lambda rng: (rng.random((ROWS, *shape)) < 0.3).astype(np.float32)


def boxes(rng):
    first = rng.uniform(0, 6, (ROWS, 3, 2))
    return np.concatenate([first, first + rng.uniform(3, 9, (ROWS, 3, 2))], -1).astype(np.float32)


# Of an argument of forward(): its data.
DATA = {
    "input_ids": words(TOKENS), "decoder_input_ids": words(TOKENS), "padded_ids": padded,
    "time": lambda rng: rng.integers(0, 100, ROWS), "categories": lambda rng: rng.integers(0, 9, (ROWS, 4)),
    "x": normal(3, SIDE, SIDE), "x32": normal(3, 32, 32), "x96": normal(3, 96, 96), "pixel_values": normal(3, 32, 32),
    "clip": normal(3, 4, 32, 32), "gray": normal(1, 16, 16), "image_noise": normal(1, 16, 16), "binary": binary(1, 16, 16),
    "audio": normal(1600), "mel": normal(20, 40), "series": normal(24, 4), "signal": normal(4, 48), "nodes": normal(9, 6),
    "points": normal(16, 3), "features": normal(12), "other": normal(12), "noise": normal(8), "target": normal(CLASSES),
    "boxes": boxes, "anchors": binary(320, 3),
}
# Of a kind of labels: the shape after the batch, and the number of classes.
LABELS = {"class": ((), CLASSES), "words": ((TOKENS,), WORDS),
          "mask": ((SIDE, SIDE), 5), "mask32": ((8, 8), 5), "nodes": ((9,), CLASSES), "boxes": ((3,), CLASSES), "loss": None}


# -- torchvision -----------------------------------------------------------------------------

def vision():
    import torchvision
    return torchvision.models


def with_head(m, n_in):
    m.classifier = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    return m


@model()
def alexnet():
    m = vision().alexnet()
    m.avgpool = nn.AdaptiveAvgPool2d(1)
    return with_head(m, 256)


@model(rates="careful")
def vgg_bn():
    from torchvision.models.vgg import make_layers
    features = make_layers([8, "M", 16, "M", 16, 16, "M", 32, "M"], batch_norm=True)
    m = vision().VGG(features, CLASSES, init_weights=False)
    m.avgpool = nn.AdaptiveAvgPool2d(2)
    return with_head(m, 32 * 4)


@model(rates="tiny")
def resnet18():
    return vision().resnet18(num_classes=CLASSES)


@model(rates="careful")
def resnext():
    from torchvision.models.resnet import Bottleneck, ResNet
    return ResNet(Bottleneck, [1, 1, 1, 1], CLASSES, groups=4, width_per_group=4)


@model(rates="careful")
def densenet():
    return vision().DenseNet(8, (2, 3, 2), 16, num_classes=CLASSES)


@model()
def squeezenet():
    return vision().squeezenet1_1(num_classes=CLASSES)


@model(rates="tiny")
def mobilenet_v2():
    return vision().mobilenet_v2(num_classes=CLASSES, width_mult=0.25)


@model()
def mobilenet_v3():
    from torchvision.models.mobilenetv3 import InvertedResidualConfig as Block, MobileNetV3
    return MobileNetV3([Block(16, 3, 16, 16, True, "RE", 2, 1, 1), Block(16, 3, 48, 24, False, "RE", 2, 1, 1),
                        Block(24, 5, 64, 24, True, "HS", 1, 1, 1), Block(24, 5, 96, 32, True, "HS", 2, 1, 1)], 64, CLASSES)


@model(rates="careful")
def shufflenet_v2():
    return vision().ShuffleNetV2([1, 2, 1], [24, 24, 48, 96, 128], CLASSES)


@model(rates="tiny")
def mnasnet():
    return vision().MNASNet(0.2, CLASSES)


@model(rates="tiny")
def googlenet():
    return Large(vision().GoogLeNet(CLASSES, aux_logits=False, init_weights=False))


@model(rates="careful")
def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig
    return EfficientNet([FusedMBConvConfig(1, 3, 1, 16, 16, 1), FusedMBConvConfig(4, 3, 2, 16, 24, 1),
                         MBConvConfig(4, 3, 2, 24, 32, 2), MBConvConfig(4, 5, 2, 32, 48, 1)],
                        0.0, 0.0, num_classes=CLASSES, norm_layer=partial(nn.BatchNorm2d, eps=1e-3), last_channel=64)


@model(name="convnext")
def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 2), CNBlockConfig(48, None, 1)], 0.0, 0.9, CLASSES)


@model(rates="careful")
def regnet():
    from torchvision.models.regnet import BlockParams, RegNet
    return RegNet(BlockParams.from_init_params(4, 16, 24.0, 2.0, 8, se_ratio=0.25), CLASSES)


@model()
def swin():
    return vision().SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=CLASSES, stochastic_depth_prob=0.0)


@model()
def swin_v2():
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2
    return vision().SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=CLASSES, stochastic_depth_prob=0.0,
                                    block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2)


@model()
def vit():
    return vision().VisionTransformer(SIDE, 16, 2, 2, 32, 64, num_classes=CLASSES)


@model(rates="careful")
def maxvit():
    return vision().MaxVit((SIDE, SIDE), 16, 2, [16, 32], [1, 1], 16, 0.0, num_classes=CLASSES)


class Segmentation(nn.Module):
    """Logits of a model of torchvision, with the classes last."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)["out"].permute(0, 2, 3, 1)


@model("mask", "careful")
def fcn():
    from torchvision.models.segmentation.fcn import FCN, FCNHead
    return Segmentation(FCN(backbone(), FCNHead(64, 5)))


@model("mask", "careful")
def deeplab_v3():
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
    return Segmentation(DeepLabV3(backbone(), DeepLabHead(64, 5, (2, 4, 6))))


@model("mask", "careful")
def lraspp():
    from torchvision.models.segmentation.lraspp import LRASPP
    return Segmentation(LRASPP(backbone("low", "high"), 32, 64, 5, 16))


def backbone(*names):
    """A small residual network whose last layers are returned by name."""
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.resnet import BasicBlock, ResNet
    m = ResNet(BasicBlock, [1, 1, 1, 1])
    m.layer1, m.layer2 = nn.Sequential(BasicBlock(64, 64)), nn.Sequential(nn.Conv2d(64, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
    m.layer3 = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU())
    m.layer4 = nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU())
    return IntermediateLayerGetter(m, {"layer2": names[0], "layer4": names[1]} if names else {"layer4": "out"})


@model(rates="careful")
def video_resnet():
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet

    class Clip(VideoResNet):
        def forward(self, clip):
            return super().forward(clip)

    return Clip(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=CLASSES)


class RetinaNet(nn.Module):
    """A feature pyramid and the heads of RetinaNet; the focal loss of each anchor and class."""

    def __init__(self):
        super().__init__()
        from torchvision.models.detection.retinanet import RetinaNetClassificationHead
        from torchvision.ops import FeaturePyramidNetwork
        self.body = backbone("low", "high")
        self.pyramid = FeaturePyramidNetwork([32, 64], 16)
        self.head = RetinaNetClassificationHead(16, 4, 3, norm_layer=lambda n: nn.GroupNorm(4, n))

    def forward(self, x, anchors):
        from torchvision.ops import sigmoid_focal_loss
        logits = self.head(list(self.pyramid(self.body(x)).values()))
        return sigmoid_focal_loss(logits, anchors, reduction="mean")


model("loss", "normal", "retinanet")(RetinaNet)


class FastRCNN(nn.Module):
    """Features of regions, by RoIAlign, classified."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 9, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, x, boxes):
        from torchvision.ops import roi_align
        n = x.shape[0]
        rows = torch.arange(n, dtype=boxes.dtype)[:, None, None].expand(n, 3, 1)
        regions = torch.cat([rows, boxes], -1).flatten(0, 1)
        return self.head(roi_align(self.body(x), regions, (3, 3), sampling_ratio=2)).view(n, 3, CLASSES)


model("boxes", name="fast_rcnn")(FastRCNN)


# -- timm ------------------------------------------------------------------------------------

def of_timm(label, name, rates="careful", wrapper=None, **sizes):
    """name: of a model; or module.Class, where the model's own function takes no sizes."""
    def make():
        import importlib
        import timm
        file, _, kind = name.partition(".")
        constructor = getattr(importlib.import_module(f"timm.models.{file}"), kind) if kind else partial(timm.create_model, name)
        return (wrapper or Images)(constructor(num_classes=CLASSES, **sizes))
    model(rates=rates, name=label)(make)


class Images(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


class Small(Images):
    def forward(self, x32):
        return self.model(x32)


class Large(Images):
    def forward(self, x96):
        return self.model(x96)


def gmlp():
    from timm.models.mlp_mixer import GatedMlp, MlpMixer, SpatialGatingBlock
    return MlpMixer(num_classes=CLASSES, img_size=SIDE, num_blocks=2, embed_dim=32, mlp_ratio=6, block_layer=SpatialGatingBlock,
                    mlp_layer=GatedMlp)


def resmlp():
    from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
    return MlpMixer(num_classes=CLASSES, img_size=SIDE, num_blocks=2, embed_dim=32, mlp_ratio=4, block_layer=ResBlock,
                    norm_layer=Affine)


of_timm("timm_vit", "test_vit", "normal", img_size=SIDE)
of_timm("timm_convnext", "test_convnext", "normal")
of_timm("timm_efficientnet_gn", "test_efficientnet_gn", "normal")
of_timm("timm_nfnet", "test_nfnet", "normal")
of_timm("byobnet", "test_byobnet")
of_timm("mambaout", "test_mambaout", "normal")
of_timm("xcit", "xcit_nano_12_p16_224", img_size=SIDE, depth=2, embed_dim=32)
of_timm("cait", "cait_xxs24_224", "normal", img_size=SIDE, depth=2, embed_dim=32, num_heads=2)
of_timm("convit", "convit_tiny", "normal", img_size=SIDE, depth=3, embed_dim=32, num_heads=2, local_up_to_layer=2)
of_timm("convmixer", "convmixer.ConvMixer", dim=32, depth=2, kernel_size=5, patch_size=8)
of_timm("crossvit", "crossvit_tiny_240", "normal", img_size=96, img_scale=(1.0, 2 / 3), patch_size=(16, 16), embed_dim=(16, 32),
        num_heads=(2, 2), depth=((1, 1, 0),), wrapper=Large)
of_timm("davit", "davit_tiny", "normal", depths=(1, 1, 1, 1), embed_dims=(16, 32, 32, 48), num_heads=(2, 2, 2, 4), window_size=4)
of_timm("eva", "eva02_tiny_patch14_224", "normal", img_size=SIDE, patch_size=16, depth=2, embed_dim=32, num_heads=2)
of_timm("focalnet", "focalnet.FocalNet", "normal", depths=(1, 1, 1, 1), embed_dim=16, drop_path_rate=0.0)
model(name="gmlp")(lambda: Images(gmlp()))
of_timm("mixer", "mlp_mixer.MlpMixer", "normal", img_size=SIDE, num_blocks=2, embed_dim=32)
model(name="resmlp")(lambda: Images(resmlp()))
of_timm("ghostnet", "ghostnet_050", "tiny")
of_timm("hiera", "hiera_tiny_224", "normal", img_size=(SIDE, SIDE), embed_dim=16, num_heads=1, stages=(1, 1, 1, 1))
of_timm("mobilevit", "mobilevit_xxs")
of_timm("poolformer", "metaformer.MetaFormer", "normal", depths=(1, 1, 1, 1), dims=(16, 16, 32, 32), use_mlp_head=False)
of_timm("pvt_v2", "pvt_v2_b0", "normal", depths=(1, 1, 1, 1), embed_dims=(8, 16, 24, 32), num_heads=(1, 2, 2, 4))
of_timm("res2net", "res2net50_26w_4s", layers=(1, 1, 1, 1), base_width=8)
of_timm("sknet", "skresnet18", layers=(1, 1, 1, 1))
of_timm("sequencer", "sequencer2d_s", "normal", layers=(1, 1, 1, 1), embed_dims=(16, 24, 24, 24), hidden_sizes=(4, 6, 6, 6),
        img_size=56)
of_timm("twins", "twins_svt_small", "normal", img_size=SIDE, depths=(1, 1, 1, 1), embed_dims=(16, 16, 32, 32), num_heads=(1, 2,
        2, 2))
of_timm("volo", "volo.VOLO", img_size=SIDE, layers=(1, 1, 1, 1), embed_dims=(16, 32, 32, 32), num_heads=(1, 2, 2, 2),
        use_mix_token=False)
of_timm("beit", "beit_base_patch16_224", "normal", img_size=SIDE, depth=2, embed_dim=32, num_heads=2)
of_timm("nest", "nest.Nest", "normal", Small, img_size=32, patch_size=2, embed_dims=(16, 16, 32), num_heads=(1, 2, 2),
        depths=(1, 1, 1), drop_path_rate=0.0)
of_timm("starnet", "starnet_s050")
of_timm("tiny_vit", "tiny_vit_5m_224", depths=(1, 1, 1, 1), embed_dims=(16, 16, 32, 32), num_heads=(1, 1, 2, 2),
        window_sizes=(4, 4, 2, 2))
of_timm("vovnet", "ese_vovnet19b_slim_dw", stage_out_chs=(16, 24, 32, 48), stem_chs=(16, 16, 16), stage_conv_chs=(16, 16, 24, 24))


# -- transformers ----------------------------------------------------------------------------

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


# -- Written here ----------------------------------------------------------------------------

class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(WORDS, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, WORDS)

    def forward(self, input_ids):
        return self.head(self.rnn(self.embed(input_ids))[0])


class Tagger(CharLSTM):
    """A bidirectional LSTM."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(16, 12, bidirectional=True, batch_first=True), nn.Linear(24, WORDS)


class GRUClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 16, 2, bidirectional=True, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, series):
        return self.head(self.rnn(series)[0].mean(1))


class SequenceToSequence(nn.Module):
    """GRUs with additive attention (Bahdanau et al., 2015)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.keys, self.queries, self.score = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.head = nn.Linear(32, WORDS)

    def forward(self, input_ids, decoder_input_ids):
        memory, state = self.encoder(self.embed(input_ids))
        h, _ = self.decoder(self.embed(decoder_input_ids), state)
        scores = self.score(torch.tanh(self.keys(memory)[:, None] + self.queries(h)[:, :, None]))[..., 0]
        return self.head(torch.cat([h, scores.softmax(-1) @ memory], -1))


class GraphBase(nn.Module):
    """A graph of 9 nodes, one for all rows; messages go along its edges, by index_add."""

    def __init__(self):
        super().__init__()
        a = [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 3, 6, 2, 5]
        b = [1, 2, 3, 4, 5, 6, 7, 8, 0, 4, 7, 1, 6, 8]
        self.register_buffer("source", torch.tensor(a + b))
        self.register_buffer("sink", torch.tensor(b + a))


class GCN(GraphBase):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, CLASSES)
        self.register_buffer("degree", torch.bincount(self.sink, minlength=9).float()[:, None])

    def spread(self, h):
        return torch.zeros_like(h).index_add(1, self.sink, h[:, self.source]) / self.degree

    def forward(self, nodes):
        return self.spread(self.second(F.relu(self.spread(self.first(nodes)))))


class GAT(GraphBase):
    """Graph attention: a softmax over the edges into a node, by scatter_reduce and scatter_add."""

    def __init__(self):
        super().__init__()
        self.values, self.score, self.head = nn.Linear(6, 16), nn.Linear(32, 1), nn.Linear(16, CLASSES)

    def forward(self, nodes):
        h = self.values(nodes)
        scores = F.leaky_relu(self.score(torch.cat([h[:, self.source], h[:, self.sink]], -1))[..., 0], 0.2)
        sink = self.sink.expand_as(scores)
        most = torch.full_like(h[..., 0], -1e9).scatter_reduce(1, sink, scores, "amax")
        weight = (scores - most.detach().gather(1, sink)).exp()
        total = torch.zeros_like(h[..., 0]).scatter_add(1, sink, weight)
        mixed = h[:, self.source] * (weight / total.gather(1, sink))[..., None]
        return self.head(F.elu(torch.zeros_like(h).scatter_add(1, sink[..., None].expand_as(mixed), mixed)))


class GIN(GraphBase):
    """A graph isomorphism network: a class of the whole graph."""

    def __init__(self):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, nodes):
        return self.mlp((1 + self.eps) * nodes + torch.zeros_like(nodes).index_add(1, self.sink, nodes[:, self.source])).sum(1)


class VAE(nn.Module):
    """A convolutional variational autoencoder; its random numbers are an input."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                                     nn.Linear(256, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 256), nn.Unflatten(1, (16, 4, 4)), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, binary, noise):
        mean, log_variance = self.encoder(binary).chunk(2, -1)
        made = self.decoder(mean + noise * (log_variance / 2).exp())
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(made, binary) + 0.01 * divergence


class VQVAE(nn.Module):
    """A codebook with a straight-through gradient."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 4, 2, 1))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))
        self.book = nn.Embedding(16, 8)

    def forward(self, gray):
        z = self.encoder(gray).permute(0, 2, 3, 1)
        distance = z.square().sum(-1, keepdim=True) - 2 * z @ self.book.weight.T + self.book.weight.square().sum(-1)
        code = self.book(distance.argmin(-1))
        loss = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        return loss + F.mse_loss(self.decoder((z + (code - z).detach()).permute(0, 3, 1, 2)), gray)


class Double(nn.Sequential):
    def __init__(self, n_in, n):
        super().__init__(nn.Conv2d(n_in, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True),
                         nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Segmentation (Ronneberger et al., 2015): up by ConvTranspose, or by interpolation."""

    def __init__(self, bilinear=False):
        super().__init__()
        self.down = nn.ModuleList([Double(3, 8), Double(8, 16), Double(16, 32)])
        double = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.rise = nn.ModuleList([nn.Sequential(double, nn.Conv2d(n, n // 2, 1)) if bilinear
                                   else nn.ConvTranspose2d(n, n // 2, 2, 2) for n in (32, 16)])
        self.up, self.head = nn.ModuleList([Double(32, 16), Double(16, 8)]), nn.Conv2d(8, 5, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for rise, block, skip in zip(self.rise, self.up, kept[-2::-1]):
            x = block(torch.cat([skip, rise(x)], 1))
        return self.head(x).permute(0, 2, 3, 1)


class BilinearUNet(UNet):
    def __init__(self):
        super().__init__(bilinear=True)


class DiffusionBlock(nn.Module):
    def __init__(self, n_in, n):
        super().__init__()
        self.norm, self.conv, self.time = nn.GroupNorm(4, n_in), nn.Conv2d(n_in, n, 3, padding=1), nn.Linear(16, n)
        self.norm2, self.conv2 = nn.GroupNorm(4, n), nn.Conv2d(n, n, 3, padding=1)
        self.skip = nn.Conv2d(n_in, n, 1) if n_in != n else nn.Identity()

    def forward(self, x, t):
        h = self.conv(F.silu(self.norm(x))) + self.time(F.silu(t))[..., None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class DiffusionUNet(nn.Module):
    """Predicts the noise of an image at a time (Ho et al., 2020), with attention in the middle."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
        self.a, self.b, self.c, self.d = DiffusionBlock(8, 8), DiffusionBlock(8, 16), DiffusionBlock(16, 16), DiffusionBlock(24, 8)
        self.norm, self.attention = nn.GroupNorm(4, 16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.shrink, self.rise = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1)
        signal = torch.cos(torch.linspace(0, 1.5, 100)).square()
        self.register_buffer("signal", signal)

    def forward(self, gray, image_noise, time):
        share = self.signal[time][:, None, None, None]
        x = share.sqrt() * gray + (1 - share).sqrt() * image_noise
        angle = time[:, None].float() * torch.exp(torch.arange(8) * (-math.log(1e4) / 8))
        t = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        first = self.a(self.first(x), t)
        h = self.b(self.shrink(first), t)
        flat = self.norm(h).flatten(2).transpose(1, 2)
        h = h + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).view_as(h)
        h = self.rise(F.interpolate(self.c(h, t), scale_factor=2, mode="nearest"))
        return F.mse_loss(self.head(self.d(torch.cat([h, first], 1), t)), image_noise)


class Generator(nn.Module):
    """A generator and a discriminator of a GAN, trained by the generator's loss (DCGAN)."""

    def __init__(self):
        super().__init__()
        self.make = nn.Sequential(nn.Linear(8, 128), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(8, 8, 4, 2, 1),
                                  nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())
        self.judge = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 8, 4, 2, 1), nn.LeakyReLU(0.2),
                                   nn.Flatten(), nn.Linear(128, 1))

    def forward(self, noise, gray):
        fake = self.make(noise)
        judged = F.softplus(-self.judge(gray)).mean() + F.softplus(self.judge(fake.detach())).mean()
        return judged + F.softplus(-self.judge(fake)).mean()


class TCN(nn.Module):
    """Causal dilated convolutions with weight normalisation."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList([norm(nn.Conv1d(4 if i == 0 else 16, 16, 3, dilation=2 ** i)) for i in range(3)])
        self.head = nn.Linear(16, CLASSES)

    def forward(self, signal):
        h = signal
        for i, layer in enumerate(self.layers):
            y = F.relu(layer(F.pad(h, (2 * 2 ** i, 0))))
            h = y + h if i else y
        return self.head(h[..., -1])


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(4, 8, 1)
        self.gates = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2 ** i) for i in range(3)])
        self.skips, self.head = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(3)]), nn.Linear(8, CLASSES)

    def forward(self, signal):
        h, total = self.first(signal), 0
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            y = F.glu(gate(F.pad(h, (2 ** i, 0))), 1)
            total, h = total + skip(y), h + y
        return self.head(F.relu(total).amax(-1))


class DLRM(nn.Module):
    """Recommendation: tables of categories, and products of all pairs of features."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(9, 8, mode="sum") for _ in range(4)])
        self.bottom, self.top = nn.Sequential(nn.Linear(12, 8), nn.ReLU()), nn.Linear(8 + 10, CLASSES)
        self.register_buffer("rows", torch.tril_indices(5, 5, -1)[0])
        self.register_buffer("columns", torch.tril_indices(5, 5, -1)[1])

    def forward(self, features, categories):
        x = self.bottom(features)
        t = torch.stack([x, *(table(categories[:, i:i + 1]) for i, table in enumerate(self.tables))], 1)
        pairs = (t @ t.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, pairs], -1))


class TabTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(9, 16), nn.Parameter(0.1 * torch.randn(4, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64 + 12, CLASSES)

    def forward(self, features, categories):
        return self.head(torch.cat([self.body(self.embed(categories) + self.place).flatten(1), features], -1))


class Translator(nn.Module):
    """torch.nn.Transformer with sinusoidal positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 16), nn.Linear(16, WORDS)
        self.body = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
        angle = torch.arange(TOKENS)[:, None] / 100 ** (torch.arange(8) / 8)
        self.register_buffer("place", torch.cat([angle.sin(), angle.cos()], -1))
        self.register_buffer("future", torch.triu(torch.ones(TOKENS, TOKENS), 1).bool())

    def forward(self, input_ids, decoder_input_ids):
        a, b = (self.embed(ids) * 4 + self.place for ids in (input_ids, decoder_input_ids))
        return self.head(self.body(a, b, tgt_mask=self.future))


class PointNet(nn.Module):
    """Points with their nearest neighbours (a DGCNN layer), pooled."""

    def __init__(self):
        super().__init__()
        self.edge, self.head = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU()), nn.Linear(16, CLASSES)

    def forward(self, points):
        n, k = points.shape[0], 4
        near = (points[:, :, None] - points[:, None]).square().sum(-1).topk(k, largest=False).indices
        other = points.gather(1, near.flatten(1)[..., None].expand(n, 16 * k, 3)).view(n, 16, k, 3)
        here = points[:, :, None].expand_as(other)
        return self.head(self.edge(torch.cat([here, other - here], -1)).amax(2).mean(1))


class SpatialTransformer(nn.Module):
    """An image resampled by a learned affine map."""

    def __init__(self):
        super().__init__()
        self.find = nn.Sequential(nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 6))
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, CLASSES))
        self.find[-1].weight.data.mul_(0.1)
        self.find[-1].bias.data.copy_(torch.tensor([1.02, 0.03, 0.01, -0.02, 0.97, 0.02]))

    def forward(self, gray):
        grid = F.affine_grid(self.find(gray).view(-1, 2, 3), [gray.shape[0], 1, 16, 16], align_corners=False)
        return self.body(F.grid_sample(gray, grid, align_corners=False))


class Capsules(nn.Module):
    """Routing by agreement (Sabour et al., 2017)."""

    def __init__(self):
        super().__init__()
        self.conv, self.weight = nn.Conv2d(1, 16, 7, 3), nn.Parameter(0.3 * torch.randn(CLASSES, 64, 6, 4))

    @staticmethod
    def squash(s):
        square = s.square().sum(-1, keepdim=True)
        return s * square / (1 + square) / (square + 1e-8).sqrt()

    def forward(self, gray):
        u = self.squash(self.conv(gray).flatten(1).view(-1, 64, 4))
        votes = torch.einsum("kiec,bic->bkie", self.weight, u)
        b = torch.zeros_like(votes[..., 0])
        for _ in range(2):
            v = self.squash((b.softmax(1)[..., None] * votes).sum(2))
            b = b + (votes * v[:, :, None]).sum(-1)
        return v.norm(dim=-1) * 5


class Flow(nn.Module):
    """A normalizing flow of affine couplings (RealNVP): the negative log likelihood."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList([nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12)) for _ in range(3)])

    def forward(self, features):
        a, b = features.chunk(2, -1)
        log_det = 0
        for net in self.nets:
            shift, scale = net(a).chunk(2, -1)
            a, b, log_det = b * scale.tanh().exp() + shift, a, log_det + scale.tanh().sum(-1)
        z = torch.cat([a, b], -1)
        return -(torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1) + log_det).mean()


class MixtureDensity(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 3 * 5))

    def forward(self, features, target):
        mean, log_deviation, weight = self.body(features).chunk(3, -1)
        apart = (target[:, :1] - mean) / log_deviation.exp()
        return -torch.logsumexp(weight.log_softmax(-1) - apart.square() / 2 - log_deviation, -1).mean()


class Siamese(nn.Module):
    """A contrastive loss of pairs (InfoNCE) with a learned temperature."""

    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Sequential(nn.Linear(12, 16), nn.Mish(), nn.Linear(16, 8)), nn.Parameter(torch.tensor(1.0))

    def forward(self, features, other):
        a, b = F.normalize(self.body(features), dim=-1), F.normalize(self.body(other), dim=-1)
        return F.cross_entropy(a @ b.T * self.scale.exp(), torch.arange(features.shape[0]))


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, features):
        return self.c(torch.sin(5 * self.b(torch.sin(5 * self.a(features)))))


class FourierOperator(nn.Module):
    """A Fourier neural operator: a product with a weight for each frequency."""

    def __init__(self):
        super().__init__()
        self.lift, self.skip, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.weight = nn.Parameter(0.2 * torch.randn(2, 8, 8, 6))

    def forward(self, series):
        h = self.lift(series)
        f = torch.view_as_real(torch.fft.rfft(h, dim=1)[:, :6])
        re, im = f[..., 0], f[..., 1]
        a, b = self.weight
        re, im = (torch.einsum("bkc,cdk->bkd", x, y) for x, y in ((re, a), (im, b)))
        y = torch.fft.irfft(torch.view_as_complex(torch.stack([re, im], -1).contiguous()), n=24, dim=1)
        return self.head(F.gelu(y + self.skip(h)).mean(1))


for kind, label, labels, rates in (
        (CharLSTM, "lstm_characters", "words", "normal"), (Tagger, "lstm_tagger", "words", "normal"),
        (GRUClassifier, "gru", "class", "normal"), (SequenceToSequence, "gru_attention", "words", "normal"),
        (GCN, "gcn", "nodes", "normal"), (GAT, "gat", "nodes", "normal"), (GIN, "gin", "class", "normal"),
        (VAE, "vae", "loss", "normal"), (VQVAE, "vq_vae", "loss", "normal"), (UNet, "unet", "mask", "normal"),
        (BilinearUNet, "unet_bilinear", "mask", "normal"), (DiffusionUNet, "diffusion_unet", "loss", "normal"),
        (Generator, "dcgan", "loss", "normal"), (TCN, "tcn", "class", "normal"), (WaveNet, "wavenet", "class", "normal"),
        (DLRM, "dlrm", "class", "normal"), (TabTransformer, "tab_transformer", "class", "normal"),
        (Translator, "nn_transformer", "words", "normal"), (PointNet, "dgcnn", "class", "normal"),
        (SpatialTransformer, "spatial_transformer", "class", "careful"), (Capsules, "capsules", "class", "normal"),
        (Flow, "flow", "loss", "normal"), (MixtureDensity, "mixture_density", "loss", "normal"),
        (Siamese, "siamese", "loss", "normal"),
        (Siren, "siren", "class", "normal"), (FourierOperator, "fourier_operator", "class", "normal")):
    model(labels, rates, label)(kind)


def build(name):
    """The model in training mode, without dropout."""
    torch.manual_seed(3)
    m = MODELS[name][0]().train()
    for part in m.modules():
        for key, value in list(vars(part).items()):
            if "drop" in key and type(value) is float:
                setattr(part, key, 0.0)
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
    return m
