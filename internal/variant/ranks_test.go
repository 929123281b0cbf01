package variant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRankOf tries the names that verl, dinov2 and torchtitan give to files, and similar names.
func TestRankOf(t *testing.T) {
	for name, want := range map[string]Rank{
		"model_world_size_4_rank_3.pt":     {Item: "model", World: 4, Number: 3, Sure: true},
		"world_size_4_rank_3.bin":          {World: 4, Number: 3, Sure: true},
		"model.world_size_12_rank_011.pth": {Item: "model", World: 12, Number: 11, Sure: true},
		"model_0000005.rank_0.pth":         {Item: "model_0000005", Number: 0, Sure: true},
		"rank2.ckpt":                       {Number: 2, Sure: true},
		"model-rank-7.pt":                  {Item: "model", Number: 7, Sure: true},
		"ckpt_rank_0_of_4.pt":              {Item: "ckpt", World: 4, Number: 0, Sure: true},
		"rank-3-of-16.bin":                 {World: 16, Number: 3, Sure: true},
		"model_3.pt":                       {Item: "model", Number: 3},
		"a_rank_b_1.pt":                    {Item: "a_rank_b", Number: 1},
	} {
		want.File = name
		got, ok := RankOf(name)
		require.True(t, ok, name)
		require.Equal(t, want, got)
		require.True(t, IsRankFile(name))
	}
	for _, name := range []string{
		"", "model.pt", "model_3.pth", "_3.pt", "model_world_size_4_rank_3.safetensors", "model_world_size_4_rank_.pt",
		"model_rank_1234567890.pt", "rank_x.pt", "model_-3.pt", "model_3.pt.tmp",
	} {
		_, ok := RankOf(name)
		require.False(t, ok, name)
		require.False(t, IsRankFile(name), name)
	}
}

// TestRankFiles: which files of a directory hold the model of the ranks, in which order, and which
// directories have files of more than one save.
func TestRankFiles(t *testing.T) {
	for name, c := range map[string]struct{ files, want []string }{
		"nothing":             {files: []string{"config.json", "model.safetensors"}},
		"by number":           {[]string{"model_rank_10.pt", "model_rank_2.pt", "x.txt"}, []string{"model_rank_2.pt", "model_rank_10.pt"}},
		"model first":         {[]string{"optim_rank_0.pt", "model_rank_0.pt", "critic_rank_0.pt"}, []string{"model_rank_0.pt"}},
		"beside an optimizer": {[]string{"actor_rank_0.pt", "optim_rank_0.pt", "extra_state_rank_0.pt"}, []string{"actor_rank_0.pt"}},
		"an optimizer alone":  {[]string{"optim_rank_1.pt", "optim_rank_0.pt"}, []string{"optim_rank_0.pt", "optim_rank_1.pt"}},
		"sure ones only":      {[]string{"model_0.pt", "model_rank_0.pt"}, []string{"model_rank_0.pt"}},
		"perhaps":             {[]string{"model_1.pt", "model_0.pt"}, []string{"model_0.pt", "model_1.pt"}},
	} {
		got, err := RankFiles(c.files)
		require.NoError(t, err, name)
		var names []string
		for _, r := range got {
			names = append(names, r.File)
		}
		require.Equal(t, c.want, names, name)
	}
	for want, files := range map[string][]string{
		`files of the ranks of several models or saves: "actor", "critic"; those of one need a folder of their own`:                                                           {"actor_rank_0.pt", "critic_rank_0.pt"},
		`files of the ranks of several models or saves: "model", "scheduler"; those of one need a folder of their own`:                                                        {"model_0.pt", "model_1.pt", "scheduler_rank_0.pt", "scheduler_rank_1.pt"},
		`files of the ranks of several models or saves: "extra_state", "optim"; those of one need a folder of their own`:                                                      {"optim_rank_0.pt", "extra_state_rank_0.pt"},
		`files of several saves, by jobs of 2 and of 4 ranks: "model_world_size_2_rank_0.pt" and "model_world_size_4_rank_1.pt"`:                                              {"model_world_size_4_rank_1.pt", "model_world_size_2_rank_0.pt"},
		`files of several saves, by jobs of unknown many and of 2 ranks: "model_rank_0.pt" and "model_world_size_2_rank_1.pt"`:                                                {"model_world_size_2_rank_1.pt", "model_rank_0.pt"},
		`several series of numbered files: "hf_model_0001", "hf_model_0002"; if ranks have saved them, those of one model need a folder of their own`:                         {"hf_model_0002_0.pt", "hf_model_0001_0.pt"},
		`several series of numbered files: "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", 1 more; if ranks have saved them, those of one model need a folder of their own`: {"a_0.pt", "b_0.pt", "c_0.pt", "d_0.pt", "e_0.pt", "f_0.pt", "g_0.pt", "h_0.pt", "i_0.pt", "j_0.pt", "k_0.pt"},
		`two files of rank 1: "model_rank_01.pt" and "model_rank_1.pt"`:                                                                                                       {"model_rank_1.pt", "model_rank_01.pt"},
	} {
		got, err := RankFiles(files)
		require.EqualError(t, err, want)
		require.Nil(t, got)
	}
}
