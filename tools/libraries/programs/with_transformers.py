"""transformers: families from their configurations, training steps, `generate`, files, and `Trainer` with checkpoints."""

from __future__ import annotations

import tempfile

import fed
import torch
import transformers as T
from fed import DEVICE, case, fill, integers, numbers, steps

_SMALL = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
_GROUPED = {**_SMALL, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODERS = {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                                   bos_token_id=1, eos_token_id=2, pad_token_id=0)),
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**_GROUPED)),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(**_GROUPED)),
    "qwen2": lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**_GROUPED)),
    "gemma": lambda: T.GemmaForCausalLM(T.GemmaConfig(**{**_GROUPED, "head_dim": 8})),
    "phi": lambda: T.PhiForCausalLM(T.PhiConfig(**_SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "mixtral": lambda: T.MixtralForCausalLM(T.MixtralConfig(**_GROUPED, num_local_experts=4)),
    "mamba": lambda: T.MambaForCausalLM(T.MambaConfig(vocab_size=48, hidden_size=32, state_size=4, num_hidden_layers=2, pad_token_id=0, eos_token_id=2,
                                                      bos_token_id=1)),
}


def _decoder(name: str) -> None:
    @case(f"{name}: training, greedy and beam")
    def run():
        model = fill(DECODERS[name](), 0.2)
        x = integers(45, 2, 7) + 3
        losses = steps(model, lambda: model(input_ids=x, labels=x).loss)
        model.eval()
        with torch.no_grad():
            greedy = model.generate(x, max_new_tokens=6, do_sample=False, attention_mask=torch.ones_like(x))
            beam = model.generate(x, max_new_tokens=4, num_beams=3, do_sample=False, attention_mask=torch.ones_like(x))
        return [losses, greedy, beam]


for _name in DECODERS:
    _decoder(_name)


@case("llama: sampled, and files")
def sampled():
    model = fill(DECODERS["llama"](), 0.2).eval()
    x = integers(45, 2, 7) + 3
    drawn = model.generate(x, max_new_tokens=5, do_sample=True, top_k=8, top_p=0.9, temperature=0.7, attention_mask=torch.ones_like(x))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = T.AutoModelForCausalLM.from_pretrained(folder).to(DEVICE).eval()
    with torch.no_grad():
        return [list(drawn.shape), bool((again(x).logits == model(x).logits).all()), model(x).logits[0, -1, :5]]


@case("bert")
def bert():
    model = fill(T.BertForSequenceClassification(T.BertConfig(**_SMALL, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3)))
    x, y = integers(48, 4, 9), integers(3, 4, seed=1)
    mask = torch.ones_like(x)
    mask[1, 5:] = 0
    return steps(model, lambda: model(input_ids=x, attention_mask=mask, labels=y).loss)


@case("distilbert")
def distilbert():
    model = fill(T.DistilBertForMaskedLM(T.DistilBertConfig(vocab_size=48, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=32, dropout=0,
                                                            attention_dropout=0)))
    x = integers(48, 2, 9)
    return steps(model, lambda: model(input_ids=x, labels=x).loss)


@case("t5")
def t5():
    model = fill(T.T5ForConditionalGeneration(T.T5Config(vocab_size=48, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0, pad_token_id=0,
                                                         eos_token_id=1, decoder_start_token_id=0)), 0.2)
    x, y = integers(48, 2, 9), integers(48, 2, 5, seed=2)
    losses = steps(model, lambda: model(input_ids=x, labels=y).loss)
    return [losses, model.eval().generate(x, max_new_tokens=5, do_sample=False)]


@case("bart")
def bart():
    model = fill(T.BartForConditionalGeneration(T.BartConfig(vocab_size=48, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                                             decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32,
                                                             dropout=0, attention_dropout=0, activation_dropout=0, pad_token_id=0, bos_token_id=1,
                                                             eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2)), 0.2)
    x = integers(45, 2, 9) + 3
    losses = steps(model, lambda: model(input_ids=x, labels=x).loss)
    return [losses, model.eval().generate(x, max_new_tokens=4, num_beams=2, do_sample=False)]


@case("vit")
def vit():
    model = fill(T.ViTForImageClassification(T.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32,
                                                         patch_size=8, num_labels=5, hidden_dropout_prob=0, attention_probs_dropout_prob=0)))
    x, y = numbers(2, 3, 32, 32), integers(5, 2)
    return steps(model, lambda: model(pixel_values=x, labels=y).loss)


@case("clip")
def clip():
    text = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    image = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
    model = fill(T.CLIPModel(T.CLIPConfig(text_config=text, vision_config=image, projection_dim=16)), 0.1)
    x, pixels = integers(45, 3, 9) + 3, numbers(3, 3, 32, 32)
    x[:, -1] = 2
    return steps(model, lambda: model(input_ids=x, pixel_values=pixels, return_loss=True).loss)


@case("whisper")
def whisper():
    model = fill(T.WhisperForConditionalGeneration(T.WhisperConfig(
        vocab_size=48, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20, max_target_positions=24, dropout=0, attention_dropout=0, activation_dropout=0,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)), 0.1)
    x, y = numbers(2, 8, 40), integers(48, 2, 6)
    return steps(model, lambda: model(input_features=x, labels=y).loss)


@case("wav2vec2")
def wav2vec2():
    model = fill(T.Wav2Vec2ForCTC(T.Wav2Vec2Config(
        vocab_size=12, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16), conv_stride=(5, 4),
        conv_kernel=(10, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, hidden_dropout=0, activation_dropout=0,
        attention_dropout=0, feat_proj_dropout=0, layerdrop=0, mask_time_prob=0, final_dropout=0, ctc_zero_infinity=True)), 0.1)
    x, y = numbers(2, 800), integers(11, 2, 4) + 1
    return steps(model, lambda: model(input_values=x, labels=y).loss)


class _Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.x, self.y = integers(48, 16, 7).cpu(), integers(2, 16, seed=1).cpu()

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "labels": self.y[i]}


def _trainer(folder: str, until: int):
    model = fill(T.BertForSequenceClassification(T.BertConfig(**_SMALL, hidden_dropout_prob=0, attention_probs_dropout_prob=0)))
    each = 4 // max(1, torch.cuda.device_count() if DEVICE == "cuda" else 1)  # on two GPUs Trainer runs DataParallel
    arguments = T.TrainingArguments(output_dir=folder, per_device_train_batch_size=each, max_steps=until, save_steps=2, logging_steps=1, report_to=[],
                                    learning_rate=1e-2, disable_tqdm=True, use_cpu=DEVICE == "cpu", train_sampling_strategy="sequential",
                                    lr_scheduler_type="constant", eval_strategy="no", average_tokens_across_devices=False)
    return T.Trainer(model=model, args=arguments, train_dataset=_Rows(), eval_dataset=_Rows())


@case("Trainer with checkpoints and resume")
def trainer():
    with tempfile.TemporaryDirectory() as folder:
        first = _trainer(folder, 4)
        first.train()
        losses = [row["loss"] for row in first.state.log_history if "loss" in row]
        resumed = _trainer(folder, 6)
        resumed.train(resume_from_checkpoint=True)
        losses += [row["loss"] for row in resumed.state.log_history if "loss" in row and row["step"] > 4]
        return [losses, resumed.evaluate()["eval_loss"], resumed.state.global_step]


fed.main()
