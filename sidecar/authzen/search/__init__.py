"""AuthZEN search: which subjects, resources and actions evaluation would allow.

handlers       reads a search, and shows one page of what was found
page_token     where the next page begins, signed
searches       the candidates of each search, judged by one revision of the policy set
claimants      who is judged: an agent in each role that it may claim
resource_ids   which resources of a type a source is
pace           keeps searches from slowing decisions
"""
