// Package quant reads quantised checkpoints as the numbers they stand for, and writes them.
//
// Most models are published quantised: each weight as several tensors, values of a few
// bits, scales, zero points, in one of many layouts. Open opens such a checkpoint with
// the weights themselves:
//
//	f, err := quant.Open("model")
//	…
//	defer f.Close()
//	t, err := f.Tensor("model.layers.0.mlp.up_proj.weight")
//	…
//	weights, err := safetensors.Append[float32](nil, t)
//
// Dequantize does the same for a map of tensors, from wherever they come. Its results are
// lazy: reading one, or a slice of it, reads the values and scales that it needs, in blocks
// of a few MiB, however large the tensor. They compose with Convert, Slice, Part and the
// writers: a checkpoint of any size becomes BF16 in bounded memory, as Quantize's example shows.
//
// # Layouts
//
// The columns of this table are the quant_method of the config, the tensors of a module with
// their dtypes, and the numbers. q is a stored value, s the scale of its block, group, row or
// tensor, z its zero point. F4 stands for two E2M1 values in a byte, the first in the low bits.
//
//	fp8, mxfp8          *: F8_E4M3, *_scale_inv: F32, E8M0 or U8              q * s in blocks, or by tensor
//	                    *: F4 (I8), *_scale_inv: F32, E8M0 or U8              q * s in groups of 32
//	                    weight F8_E4M3, scale E8M0 (DeepSeek V4)              q * s in blocks of 128×128
//	                    weight F4 (I8), scale E8M0 (DeepSeek V4, experts)     q * s in groups of 32
//	                    weight F8_E4M3, weight_scale F32 (AutoFP8)            q * s
//	fbgemm_fp8          weight F8_E4M3, weight_scale F32                      q * s by row
//	compressed-tensors  weight F8_E4M3, weight_scale                          q * s by row, tensor or block
//	                    weight F8_E4M3, weight_scale U8 (MXFP8)               q * s in groups of 32
//	                    weight I8, weight_scale, weight_zero_point            (q - z) * s by row, tensor or block
//	                    weight_packed I32 (1 to 8 bits), weight_scale,        (q - z) * s in groups, by row, tensor
//	                    weight_shape, weight_zero_point, weight_g_idx         or block, or in the groups of weight_g_idx
//	                    weight_packed F4, weight_scale F8_E4M3,               q * (s / weight_global_scale)
//	                    weight_global_scale F32 (NVFP4)                       in groups of 16
//	                    weight_packed F4, weight_scale U8 (MXFP4)             q * s in groups of 32
//	modelopt            weight F4, weight_scale F8_E4M3, weight_scale_2 F32   q * (s * weight_scale_2) in groups of 16
//	                    weight F8_E4M3, weight_scale F32                      q * s
//	mxfp4 (gpt-oss)     *_blocks F4, *_scales U8                              q * s in groups of 32, transposed
//	gptq                qweight I32 (2, 3, 4, 8 bits), qzeros, scales, g_idx  (q - z) * s in groups, transposed
//	awq                 qweight I32 (4 bits), qzeros, scales                  (q - z) * s in groups, transposed
//	auto-round          those of gptq or awq
//	bitsandbytes        *: 4 bits in any dtype, *.absmax, *.quant_map,        quant_map[q] * s in blocks; scales
//	                    *.quant_state…, *.nested_…                            may be quantised themselves
//	                    weight I8, SCB F32                                    q * s * (1/127) by row
//	(MLX)               weight U32 (2, 3, 4, 5, 6, 8 bits), scales, biases    q * s + bias in groups
//	(ComfyUI)           weight F8_E4M3 or F8_E5M2, weight_scale, comfy_quant  q * s
//	                    weight F8_E4M3, scale_weight                          q * s
//	                    weight I8, weight_scale, comfy_quant                  q * s by row or tensor
//	                    weight F4, weight_scale F8_E4M3, weight_scale_2 F32,  q * (s * weight_scale_2) in groups of 16,
//	                    comfy_quant (NVFP4)                                   the first q in the high bits, s as cuBLAS has it
//	                    weight F8_E4M3, weight_scale U8, comfy_quant (MXFP8)  q * s in groups of 32, s as cuBLAS has it
//
// A star stands for the name of a parameter, such as experts.gate_up_proj, which may be
// that of several matrices; other names follow that of a module. A config of gptq, awq
// or auto-round may have rules for modules of their own.
//
// Each product, difference and sum is rounded to float32, as the reference packages compute
// them on a CPU, bit by bit. Where packages differ, the results are those of
// compressed-tensors, transformers (gpt-oss), gptqmodel (GPTQ), autoawq, bitsandbytes and MLX,
// without the narrower dtypes that some have in between. A NaN scale gives NaN.
//
// The tensors say which of them are quantised, the config how: its bits, group sizes and
// block sizes. Without a config, names, dtypes and shapes must do: GPTQ, AWQ, MLX, MXFP8 and
// the NVFP4 of ModelOpt need one; FP8 in blocks is taken to have blocks of 128×128.
//
// # What is left out
//
// Parts of quantised tensors go with the quantisation, and so do markers. Scales of inputs
// and outputs go if they have one element, or one for each expert; those of the cache of an
// attention if they have one element, or one for each head that the config speaks of. Biases
// stay. Any other tensor next to a quantised one is an error: smoothing, rotation or a
// low-rank part would change what the weights mean.
//
// # Quantising
//
// Quantize makes a checkpoint in the layouts of compressed-tensors, rounded to the
// nearest without calibration. WriteShards writes it as a directory that transformers and
// vLLM load, once the quantization_config is in its config.json.
//
// With MXFP4, numbers from 2.98e38 on become 2.55e38, the largest that its scales allow in
// float32, where compressed-tensors writes zeros. Those of F16 from 57344 on become 65536,
// which F16 does not have. A group with a NaN or an infinity becomes NaN.
//
// # Errors
//
// A checkpoint that does not fit its layout is an error that names the tensor and the
// rule. So are weights that are right only for inputs that the model scales or transforms
// as it runs, and a key of a quantization_config that is not known to change no number,
// unless it is null, false or empty. An index of groups (g_idx) is checked when its tensor
// is first read.
//
// # Lifetime, memory and concurrency
//
// The results refer to the tensors they are made of, so close a file after they are read.
// Dequantize reads only stored shapes (packed integers of compressed-tensors, in one read
// where they are neighbors), the tables and formats of bitsandbytes and the markers of
// ComfyUI, up to 16 concurrently. A result keeps the scale of its scales in memory, and an
// index of groups that are not adjacent; both are read when they are first needed.
// Everything may be called concurrently.
//
// # Untrusted files
//
// Nothing is allocated because a shape claims it, and no index is used unchecked. A
// config is data, of at most 4 MiB. Its regular expressions have at most 4 KiB each and
// 128 KiB together, with repeats written out, and a number of steps to match all names that
// takes some seconds; those that ignore case are refused. No model comes near. Errors cut
// the names that they quote.
package quant
