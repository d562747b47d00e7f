"""diffusers and kornia: a small UNet with DDPM and DDIM, ControlNet; filters, geometry and augmentations."""

from __future__ import annotations

import tempfile

import fed
import torch
from fed import DEVICE, case, fill, integers, numbers, steps


def _unet():
    from diffusers import UNet2DModel
    return fill(UNet2DModel(sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
                            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")), 0.05)


@case("diffusers: training a UNet")
def training():
    from diffusers import DDPMScheduler
    net, schedule = _unet(), DDPMScheduler(num_train_timesteps=20)
    x, noise, t = numbers(2, 1, 16, 16), numbers(2, 1, 16, 16, seed=5), integers(20, 2)
    return steps(net, lambda: torch.nn.functional.mse_loss(net(schedule.add_noise(x, noise, t), t).sample, noise))


@case("diffusers: DDIM and files")
def ddim():
    from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel
    net = _unet().eval()
    schedule = DDIMScheduler(num_train_timesteps=20)
    schedule.set_timesteps(4)
    x = numbers(1, 1, 16, 16)
    with torch.no_grad():
        for t in schedule.timesteps:
            x = schedule.step(net(x, t).sample, t, x).prev_sample
    pipe = DDIMPipeline(net, DDIMScheduler(num_train_timesteps=20)).to(DEVICE)
    pipe.set_progress_bar_config(disable=True)
    shape = pipe(batch_size=1, num_inference_steps=2, output_type="np").images.shape
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        again = UNet2DModel.from_pretrained(folder).to(DEVICE).eval()
    same = torch.allclose(again(x, 1).sample, net(x, 1).sample, atol=1e-5)
    return [x[0, 0, 0, :6], list(shape), same]


@case("diffusers: conditional UNet and ControlNet")
def conditional():
    from diffusers import ControlNetModel, UNet2DConditionModel
    options = {"in_channels": 4, "layers_per_block": 1, "block_out_channels": (8, 16), "cross_attention_dim": 8, "attention_head_dim": 4, "norm_num_groups": 4}
    net = fill(UNet2DConditionModel(sample_size=8, out_channels=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **options), 0.05)
    control = fill(ControlNetModel(down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), conditioning_embedding_out_channels=(4, 8), **options), 0.05)
    x, words, hint = numbers(1, 4, 8, 8), numbers(1, 3, 8), numbers(1, 3, 16, 16)
    down, middle = control(x, 3, words, hint, return_dict=False)
    out = net(x, 3, words, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample
    return [out[0, 0, 0], middle[0, 0, 0]]


@case("kornia")
def kornia_():
    import kornia as K
    x = numbers(1, 3, 16, 16).sigmoid()
    turned = K.geometry.transform.rotate(x, torch.tensor([30.0], device=x.device))
    h = torch.eye(3, device=x.device)[None] + 0.01 * numbers(1, 3, 3)
    flips = K.augmentation.RandomHorizontalFlip(p=1.0)
    return [K.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5))[0, 0, 3], K.filters.sobel(x)[0, 1, 3], K.filters.median_blur(x, (3, 3))[0, 2, 5],
            turned[0, 0, 4], K.geometry.transform.warp_perspective(x, h, (16, 16))[0, 0, 8], K.color.rgb_to_lab(x)[0, :, 0, 0],
            K.color.rgb_to_hsv(x)[0, :, 1, 1],
            K.feature.harris_response(x)[0, 0, 5], K.losses.ssim_loss(x, flips(x), 5), K.morphology.dilation(x, torch.ones(3, 3, device=x.device))[0, 0, 2],
            K.geometry.conversions.axis_angle_to_rotation_matrix(numbers(2, 3))[0], flips(x)[0, 0, 0, :4],
            K.enhance.adjust_contrast(x, 1.5)[0, 0, 0, :4], K.augmentation.AugmentationSequential(K.augmentation.RandomCrop((8, 8)))(x).shape[-1]]


fed.main()
