package checkpoint

import (
	"slices"
	"strings"
	"sync"
)

// A group lists tensors that a model of some architectures has either all of or none of. Examples are a head
// that only some classes have, and the embeddings of a tower.
type group struct {
	types []string // values of model_type, in the config or in a config within it
	names []string // names of the tensors after a common prefix
}

// groups are the groups of the architectures that have layouts. The table is built on first use.
var groups = sync.OnceValue(func() []group {
	return []group{
		{[]string{"bert", "albert", "roberta", "xlm-roberta", "camembert", "vit", "deit"}, below("pooler.", withBias("dense"))},
		{[]string{"bert", "deberta-v2"}, append(below("cls.predictions.transform.", withBias("dense", "LayerNorm")), "cls.predictions.bias")},
		{[]string{"bert"}, withBias("cls.seq_relationship")},
		{[]string{"albert"}, append(below("predictions.", withBias("dense", "LayerNorm")), "predictions.bias")},
		{[]string{"roberta", "xlm-roberta", "camembert", "mpnet"}, append(below("lm_head.", withBias("dense", "layer_norm")), "lm_head.bias")},
		{[]string{"roberta", "xlm-roberta", "camembert", "mpnet", "electra"}, below("classifier.", withBias("dense", "out_proj"))},
		{[]string{"distilbert"}, append(withBias("vocab_transform", "vocab_layer_norm"), "vocab_projector.bias")},
		{[]string{"distilbert"}, withBias("pre_classifier")},
		{[]string{"bert", "albert", "distilbert", "vit", "deit", "dinov2"}, withBias("classifier")},
		{[]string{"bert", "albert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet", "electra", "deberta-v2"}, withBias("qa_outputs")},
		{[]string{"vit", "deit", "dinov2"}, withBias("layernorm")},
		{[]string{"vit", "deit", "dinov2"}, append(withBias("embeddings.patch_embeddings.projection"), "embeddings.position_embeddings", "embeddings.cls_token")},
		{[]string{"clip", "clip_text_model", "siglip", "siglip_text_model"}, append(withBias("final_layer_norm"), weightsOf("embeddings.token_embedding", "embeddings.position_embedding")...)},
		{[]string{"siglip", "siglip_text_model"}, append(below("text_model.", withBias("head", "final_layer_norm")), "text_model.embeddings.token_embedding.weight")},
		{[]string{"clip", "clip_vision_model"}, append(withBias("pre_layrnorm", "post_layernorm"), "embeddings.class_embedding", "embeddings.patch_embedding.weight", "embeddings.position_embedding.weight")},
		{[]string{"siglip", "siglip_vision_model"}, append(withBias("post_layernorm", "embeddings.patch_embedding"), "embeddings.position_embedding.weight")},
		{[]string{"siglip", "siglip_vision_model"}, append(below("head.", withBias("attention.out_proj", "layernorm", "mlp.fc1", "mlp.fc2")), "head.probe", "head.attention.in_proj_weight", "head.attention.in_proj_bias")},
		{[]string{"clip"}, []string{"text_projection.weight", "visual_projection.weight", "logit_scale"}},
		{[]string{"siglip"}, []string{"logit_scale", "logit_bias"}},
		{[]string{"llava"}, weightsOf("multi_modal_projector.linear_1", "multi_modal_projector.linear_2")},
		{[]string{"llava"}, []string{"multi_modal_projector.linear_1.bias", "multi_modal_projector.linear_2.bias"}},
		{[]string{"gemma3"}, []string{"multi_modal_projector.mm_input_projection_weight", "multi_modal_projector.mm_soft_emb_norm.weight"}},
		{[]string{"bart", "mbart"}, withBias("layernorm_embedding")},
		{[]string{"mbart", "pegasus", "m2m_100"}, withBias("encoder.layer_norm")},
		{[]string{"mbart", "pegasus", "m2m_100"}, withBias("decoder.layer_norm")},
		{[]string{"bart", "mbart"}, below("encoder.", append(withBias("layernorm_embedding"), "embed_positions.weight"))},
		{[]string{"bart", "mbart"}, below("decoder.", append(withBias("layernorm_embedding"), "embed_positions.weight"))},
		{[]string{"opt"}, withBias("final_layer_norm")},
		{[]string{"gptj"}, withBias("lm_head")},
	}
})

// missingOfGroups returns the missing tensors of those groups of which at least half is stored.
func missingOfGroups(where place, configs []configPart) (names []string) {
	for _, g := range groups() {
		if !slices.ContainsFunc(configs, func(p configPart) bool { return slices.Contains(g.types, p.Type) }) {
			continue
		}
		have := make(map[string]map[string]bool)
		for name := range where {
			for _, member := range g.names {
				prefix, found := strings.CutSuffix(name, member)
				if !found {
					prefix, found = strings.CutSuffix(name, oldNames.Replace(member))
				}
				if found && (prefix == "" || strings.HasSuffix(prefix, ".")) {
					if have[prefix] == nil {
						have[prefix] = make(map[string]bool)
					}
					have[prefix][member] = true
				}
			}
		}
		for prefix, members := range have {
			for _, member := range g.names {
				if !members[member] && 2*len(members) >= len(g.names) && where[prefix+strings.TrimSuffix(member, "bias")+"decoder.bias"] == "" {
					names = append(names, prefix+member)
				}
			}
		}
	}
	return names
}
