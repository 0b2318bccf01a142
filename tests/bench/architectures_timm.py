"""Small architectures of timm."""

from functools import partial

from architecture_base import CLASSES, SIDE, Images, Large, Small, model


def of_timm(label, name, rates="careful", wrapper=None, **sizes):
    """name: of a model; or module.Class, if the model's own function takes no sizes."""
    def make():
        import importlib
        import timm
        file, _, kind = name.partition(".")
        constructor = getattr(importlib.import_module(f"timm.models.{file}"), kind) if kind else partial(timm.create_model, name)
        return (wrapper or Images)(constructor(num_classes=CLASSES, **sizes))
    model(rates=rates, name=label)(make)


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
