"""Sign-in by OpenID Connect: the authorization code flow with PKCE, against one provider.

    attempt    what this browser must bring back: state, nonce and verifier, in its cookie
    provider   discovery, the provider's keys, and the exchange of a code for tokens
    id_token   what the ID token proves, checked with Authlib
    person     who that is: a name for the log, and the groups that grant something here

Only `provider` opens a connection. Authlib is imported when a provider is configured.
"""
