"""Small architectures of torchvision, and of its parts for detection."""

from functools import partial

import torch
from torch import nn

from architecture_base import CLASSES, SIDE, Large, model


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
    """A small residual network with its last layers returned by name."""
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
