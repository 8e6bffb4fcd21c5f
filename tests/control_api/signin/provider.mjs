// Runs npm's certified `oidc-provider` on loopback, with the people of a JSON file.
// Arguments: the path of the package's index.js, and of the configuration.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { pathToFileURL } from 'node:url';

const [, , index, file] = process.argv;
const { default: Provider } = await import(pathToFileURL(index));
const { issuer, port, tls, jwks, clients, people, inToken } = JSON.parse(readFileSync(file));

const provider = new Provider(issuer, {
  clients,
  jwks,
  claims: {
    openid: ['sub'],
    email: ['email', 'email_verified'],
    profile: ['name', 'preferred_username'],
    groups: ['groups'],
  },
  scopes: ['openid', 'profile', 'email', 'groups'],
  // By default the claims are at the UserInfo endpoint only, as the specification says.
  conformIdTokenClaims: !inToken,
  enabledJWA: {
    idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256', 'EdDSA', 'HS256'],
  },
  cookies: { keys: ['a key of the tests'] },
  findAccount: (_, id) => people[id] && {
    accountId: id,
    claims: () => ({ sub: id, ...people[id] }),
  },
  // The clients are the operator's own: nobody is asked whether they may see the claims.
  loadExistingGrant: async (ctx) => {
    const { client, session, params, provider: own } = ctx.oidc;
    const grant = new own.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope(params.scope);
    await grant.save();
    return grant;
  },
  features: {
    devInteractions: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
});

const server = tls
  ? https.createServer({ cert: readFileSync(tls.cert), key: readFileSync(tls.key) }, provider.callback())
  : http.createServer(provider.callback());
server.listen(port, '127.0.0.1', () => console.log(`listening ${port}`));
