"""An identity provider: idpyoidc's token endpoint with its own token exchange, over Flask. Prints its URL when it listens."""
import json
import logging

from flask import Flask, Response, request
from idpyoidc.server import Server
from idpyoidc.server.configure import ASConfiguration
from idpyoidc.server.exception import ClientAuthenticationError
from idpyoidc.server.oauth2.token_helper import validate_token_exchange_policy
from idpyoidc.server.session import grant as grants
from werkzeug.serving import make_server

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
HELPERS = "idpyoidc.server.oauth2.token_helper."
SECRETS = {name: f"{name}-secret-0123456789abcdef0123456789" for name in ("agent", "gateway")}
USAGE = {"access_token": {"supports_minting": ["access_token"], "expires_in": 600}}


def symmetric(kid):
    return {"type": "OCT", "use": ["enc"], "kid": kid}


def configuration(issuer):
    policy = {"audience": ["orders", "billing"], "scope": ["read", "write"]}
    exchange = {
        "subject_token_types_supported": [ACCESS_TOKEN],
        "requested_token_types_supported": [ACCESS_TOKEN],
        "default_requested_token_type": ACCESS_TOKEN,
        "policy": {"": {"function": validate_token_exchange_policy, "kwargs": policy}},
    }
    grant_types = {
        "client_credentials": {"class": HELPERS + "client_credentials.ClientCredentials"},
        EXCHANGE: {"class": HELPERS + "token_exchange.TokenExchangeHelper", "kwargs": exchange},
    }
    token_endpoint = {
        "path": "token",
        "class": "idpyoidc.server.oauth2.token.Token",
        "kwargs": {
            "client_authn_method": ["client_secret_basic", "client_secret_post"],
            "grant_types_helpers": grant_types,
        },
    }
    return {
        "issuer": issuer,
        "preference": {},
        "capabilities": {"grant_types_supported": list(grant_types)},
        "key_conf": {"key_defs": [{"type": "EC", "crv": "P-256", "use": ["sig"]}], "uri_path": "jwks"},
        "token_handler_args": {
            "jwks_defs": {"key_defs": [{"type": "oct", "bytes": 24, "use": ["enc"], "kid": "code"}]},
            "token": {"class": "idpyoidc.server.token.jwt_token.JWTToken", "kwargs": {"lifetime": 600, "aud": []}},
        },
        "endpoint": {"token": token_endpoint},
        "authz": {
            "class": "idpyoidc.server.authz.AuthzHandling",
            "kwargs": {"grant_config": {"usage_rules": USAGE, "expires_in": 43200}},
        },
        "scopes_to_claims": {"read": [], "write": [], "openid": []},
        "userinfo": {"class": "idpyoidc.server.user_info.UserInfo", "kwargs": {"db": {}}},
        "session_params": {
            "encrypter": {"kwargs": {"keys": {"key_defs": [symmetric("password"), symmetric("salt")]}, "iterations": 1}},
            "sub_func": {"public": {"class": "idpyoidc.server.session.manager.PublicID", "kwargs": {"salt": "s"}}},
        },
    }


def client(name):
    return {
        "client_id": name,
        "client_secret": SECRETS[name],
        "client_salt": "salted",
        "redirect_uris": [],
        "allowed_scopes": ["read", "write"],
        "grant_types_supported": ["client_credentials", EXCHANGE],
        "token_usage_rules": USAGE,
        "token_endpoint_auth_method": "client_secret_basic",
        "client_type": "confidential",
    }


def allow_exchange_of_client_credentials():
    """idpyoidc mints nothing from such tokens by itself."""
    for defaults in vars(grants).values():
        rule = defaults.get("access_token") if isinstance(defaults, dict) else None
        if isinstance(rule, dict) and "supports_minting" in rule:
            rule["supports_minting"] = ["access_token"]


def answer(result, status):
    text = result.to_json() if hasattr(result, "to_json") else json.dumps(result)
    return Response(text, status, mimetype="application/json")


def main():
    logging.disable(logging.CRITICAL)
    allow_exchange_of_client_credentials()
    app = Flask("idp")
    listener = make_server("127.0.0.1", 0, app)
    issuer = f"http://127.0.0.1:{listener.port}"
    server = Server(ASConfiguration(conf=configuration(issuer), base_path="."), cwd=".")
    context = server.context
    for name in SECRETS:
        context.cdb[name] = client(name)
        context.keyjar.add_symmetric(name, SECRETS[name])

    @app.post("/token")
    def token():
        endpoint = server.endpoint["token"]
        form = {name: values if len(values) > 1 else values[0] for name, values in request.form.to_dict(flat=False).items()}
        headers = {name.lower(): value for name, value in request.headers}
        try:
            asked = endpoint.parse_request(form, http_info={"headers": headers})
        except ClientAuthenticationError as error:
            return answer({"error": "invalid_client", "error_description": str(error)}, 401)
        result = asked if "error" in asked else endpoint.process_request(asked)
        if "error" in result:
            return answer(result, 401 if result["error"] == "invalid_client" else 400)
        if form["grant_type"] == "client_credentials":
            sessions, issued = context.session_manager, result["response_args"]["access_token"]
            session = sessions.get_session_info_by_token(issued, grant=True, handler_key="access_token")
            sessions.find_token(session["branch_id"], issued).usage_rules = {"supports_minting": ["access_token"]}
        return answer(result["response_args"], 200)

    print(issuer, flush=True)
    listener.serve_forever()


main()
