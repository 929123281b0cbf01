// Package quant reads quantised checkpoints as the numbers that they represent, and writes
// quantised checkpoints.
//
// Many models are published quantised: each weight is stored as several tensors, such as values
// of a few bits, scales and zero points, in one of many layouts. Open opens such a checkpoint and
// returns the weights themselves:
//
//	f, err := quant.Open("model")
//	…
//	defer f.Close()
//	t, err := f.Tensor("model.layers.0.mlp.up_proj.weight")
//	…
//	weights, err := safetensors.Append[float32](nil, t)
//
// Dequantize does the same for a map of tensors from any source. Its results are lazy: reading a
// result, or a slice of it, reads only the values and scales that are needed, in blocks of a few
// MiB, however large the tensor is. Results work with Convert, Slice, Part and the writers: a
// checkpoint of any size can be converted to BF16 in bounded memory, as the example of Quantize
// shows.
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
//	                    weight F8_E4M3, weight_scale U8 or E8M0 (MXFP8)       q * s in groups of 32
//	                    weight I8, weight_scale, weight_zero_point            (q - z) * s by row, tensor or block
//	                    weight_packed I32 (1 to 8 bits), weight_scale,        (q - z) * s in groups, by row, tensor
//	                    weight_shape, weight_zero_point, weight_g_idx         or block, or in the groups of weight_g_idx
//	                    weight_packed F4, weight_scale F8_E4M3,               q * (s / weight_global_scale)
//	                    weight_global_scale F32 (NVFP4)                       in groups of 16
//	                    weight_packed F4, weight_scale U8 (MXFP4)             q * s in groups of 32
//	modelopt            weight F4, weight_scale F8_E4M3, weight_scale_2 F32   q * (s * weight_scale_2) in groups of 16
//	                    weight F8_E4M3, weight_scale F32                      q * s
//	modelopt, mxfp8     weight F8_E4M3, weight_scale U8 or E8M0               q * s in groups of 32
//	                    *: F8_E4M3, *_weight_scale: U8 or E8M0 (experts)      q * s in groups of 32
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
//	                    comfy_quant (NVFP4)                                   the first q in the high bits, s in cuBLAS order
//	                    weight F8_E4M3, weight_scale U8, comfy_quant (MXFP8)  q * s in groups of 32, s in cuBLAS order
//
// A star stands for the name of a parameter, such as experts.gate_up_proj, which may hold several
// matrices; other names follow the name of a module. A config of gptq, awq or auto-round may have
// rules with different settings for some modules.
//
// Each product, difference and sum is rounded to float32, so that it equals, bit by bit, the result
// of the reference package on a CPU. Where packages differ, the results are those of
// compressed-tensors, transformers (gpt-oss), gptqmodel (GPTQ), autoawq, bitsandbytes and MLX,
// without the narrower dtypes to which some of them round intermediate results. A NaN scale gives
// NaN.
//
// In version 1 of GPTQ, a stored zero point is one less than its value. If the config names GPTQModel
// in meta.quantizer, words of zero points of 2, 4 or 8 bits are read as GPTQModel writes and loads
// them: it subtracts from a whole word, so that a zero point of 0 borrows from the next one. Otherwise
// each zero point stands for itself, and the largest one that can be stored stands for 0.
//
// The names, dtypes and shapes of tensors determine which tensors are quantised. The config
// specifies the details: bits, group sizes and block sizes. GPTQ, AWQ, MLX, MXFP8 and the NVFP4 of
// ModelOpt need a config. The other layouts can be read without one; FP8 in blocks is then assumed
// to have blocks of 128×128.
//
// # What is left out
//
// The result does not contain the parts of quantised tensors, or markers. Scales of inputs and
// outputs are left out if they have one element, or one for each expert. Scales of the cache of an
// attention layer, or of a quantised k_proj or v_proj, are left out if they have one element.
// Scales of the cache of an attention layer may also have one element for each head, where the
// config specifies the number of heads. Biases stay. Any other tensor next to a quantised one is an
// error: smoothing, rotation or a low-rank part would change the meaning of the weights.
//
// # Quantising
//
// Quantize makes a checkpoint in the layouts of compressed-tensors. It rounds to the nearest value,
// without calibration. WriteShards writes the checkpoint as a directory, which transformers and
// vLLM load once the quantization_config is in its config.json, as the example Quantize (Folder) shows.
//
// With MXFP4, numbers of 2.98e38 or more become 2.55e38, the largest number that its scales allow
// in float32, whereas compressed-tensors writes zeros. F16 numbers of 57344 or more become 65536,
// which F16 cannot represent. A group with a NaN or an infinity becomes NaN.
//
// # Errors
//
// If a checkpoint does not fit its layout, the error names the tensor and the rule. It is also an
// error if weights are right only for inputs that the model scales or transforms while it runs. A
// key of a quantization_config that may change numbers, and that this package does not know, is an
// error unless it is null, false or empty. A key that repeats a fact that follows from the tensors,
// such as bnb_4bit_quant_type, must agree with them. So must sym and zero_point with the zero
// points, and desc_act with the index of groups (g_idx); these are checked when the tensor is first
// read.
//
// The quantization_config is in the config itself, or in a config within it, at most two levels
// down. A quant_method elsewhere is an error, unless its section is a copy of the
// quantization_config.
//
// # Lifetime, memory and concurrency
//
// The results refer to the tensors from which they are computed, so close a file only after they
// are read. Dequantize itself reads only the stored shapes of the packed integers of
// compressed-tensors, which take one read if they are neighbors in the file, the tables and formats
// of bitsandbytes, and the markers of ComfyUI, up to 16 concurrently. A result reads two parts when
// they are first needed, and keeps them in memory: the global scale of its scales, and the index of
// groups if the columns of a group are not adjacent. All funcs and methods may be called
// concurrently.
//
// # Untrusted files
//
// The claims of a shape never cause an allocation, and every index is checked before it is used. A
// config may have at most 4 MiB. Its regular expressions may have at most 4 KiB each and 128 KiB
// together, with repeats written out. Matching them with all names may take some seconds at most.
// Expressions that ignore case, and those that have another meaning in Python, are refused. These
// limits are far beyond all known models. Errors shorten the names that they quote.
package quant
