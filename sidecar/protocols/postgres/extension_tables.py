"""The functions, operators and types of extensions that compute and read nothing else.

An extension can be installed in any schema, so the server has to say that a name is the
extension's.
"""

from __future__ import annotations

from sidecar.protocols.postgres.names import words

FUNCTIONS = words("""
array_to_halfvec array_to_sparsevec array_to_vector binary_quantize cosine_distance halfvec
halfvec_to_float4 halfvec_to_sparsevec halfvec_to_vector hamming_distance inner_product
jaccard_distance l1_distance l2_distance l2_norm l2_normalize sparsevec sparsevec_to_halfvec
sparsevec_to_vector subvector vector vector_dims vector_norm vector_to_float4 vector_to_halfvec
vector_to_sparsevec
similarity show_limit show_trgm strict_word_similarity word_similarity
daitch_mokotoff difference dmetaphone dmetaphone_alt levenshtein levenshtein_less_equal metaphone
soundex text_soundex
unaccent
akeys avals defined delete each exist exists_all exists_any fetchval hstore hstore_to_array
hstore_to_json hstore_to_json_loose hstore_to_jsonb hstore_to_jsonb_loose hstore_to_matrix
isdefined isexists populate_record skeys slice slice_array svals tconvert
citext
index lca ltree2text nlevel subltree subpath text2ltree
icount idx intset sort sort_asc sort_desc subarray uniq
uuid_generate_v1 uuid_generate_v1mc uuid_generate_v3 uuid_generate_v4 uuid_generate_v5 uuid_nil
uuid_ns_dns uuid_ns_oid uuid_ns_url uuid_ns_x500
crypt digest gen_random_bytes gen_salt hmac
cube cube_contained cube_contains cube_coord cube_dim cube_distance cube_enlarge cube_inter
cube_is_point cube_ll_coord cube_overlap cube_size cube_subset cube_union cube_ur_coord
distance_chebyshev distance_taxicab
earth earth_box earth_distance gc_to_sec geo_distance latitude ll_to_earth longitude sec_to_gc
""")
"""Line by line: pgvector, pg_trgm, fuzzystrmatch, unaccent, hstore, citext, ltree, intarray,
uuid-ossp, the digests of pgcrypto, cube, earthdistance."""

OPERATORS = words("""
<-> <#> <=> <+> <~> <%>
% <% %> <<% %>> <<-> <->> <<<-> <->>>
#= %% %# ?@> ^@> ^<@ ?<@ ^@ ?~ ^? @@ <@>
""")
"""Operators of the same extensions and of `btree_gist`. Some have the name of one of the server's
own for other types."""

TYPES = words("""
vector halfvec sparsevec hstore citext ltree lquery ltxtquery query_int cube earth
""")
