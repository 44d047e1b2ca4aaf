// An identity provider: @jmondi/oauth2-server's own token exchange, over node's server. Its argument is the folder in which the
// package is installed; prints its URL when it listens.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const dist = pathToFileURL(`${process.argv[2]}/node_modules/@jmondi/oauth2-server/dist/`).href;
const { AuthorizationServer, DateInterval, JwtService, OAuthException, OAuthRequest } = await import(`${dist}index.js`);
const { handleVanillaError } = await import(`${dist}vanilla.js`);

const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const grants = ["client_credentials", EXCHANGE];
const scopes = ["read", "write"].map((name) => ({ name }));
const client = (id) => ({
  id,
  name: id,
  secret: `${id}-secret-0123456789abcdef0123456789`,
  redirectUris: [],
  allowedGrants: grants,
  scopes,
});
const clients = new Map(["agent", "gateway"].map((id) => [id, client(id)]));

class Jwt extends JwtService {
  extraTokenFields() {
    return audience ? { aud: audience } : {};
  }
}
const jwt = new Jwt("key-0123456789abcdef0123456789abcdef");
let audience; // of the request that is answered: one at a time

const clientRepository = {
  getByIdentifier: async (id) => clients.get(id),
  isClientValid: async (_grant, client, secret) => client?.secret === secret,
};
const tokenRepository = {
  issueToken: async (client, scopes, user) => ({
    accessToken: crypto.randomUUID(),
    accessTokenExpiresAt: new Date(Date.now() + 600_000),
    client,
    user,
    scopes,
  }),
  persist: async () => {},
  revoke: async () => {},
};
const scopeRepository = {
  getAllByIdentifiers: async (names) => scopes.filter(({ name }) => names.includes(name)),
  finalize: async (scopes) => scopes,
};
const server = new AuthorizationServer(clientRepository, tokenRepository, scopeRepository, jwt, { requiresPKCE: false });
server.enableGrantTypes(
  ["client_credentials", new DateInterval("10m")],
  {
    grant: EXCHANGE,
    processTokenExchange: async ({ subjectToken, audience }) => {
      if (!["orders", "billing"].includes(audience)) throw OAuthException.badRequest("no such audience");
      const claims = await jwt.verify(subjectToken).catch(() => undefined);
      if (!claims) throw OAuthException.badRequest("the subject token is invalid");
      return { id: claims.sub ?? claims.cid };
    },
  },
);

let last = Promise.resolve();
const listener = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = Object.fromEntries(new URLSearchParams(Buffer.concat(chunks).toString()));
    last = last.then(async () => {
      audience = body.audience;
      const asked = new OAuthRequest({ headers: request.headers, body, query: {} });
      const answer = await server.respondToAccessTokenRequest(asked).catch(handleVanillaError);
      response.writeHead(answer.status, { "content-type": "application/json" });
      response.end(JSON.stringify(answer.body));
    });
  });
});
listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}`));
