"""Kafka's keys for protection: TLS, SASL, authorization, tokens, policies.

A table of `accepted.py`, which says how it is read. Ottla knows these keys and does not act on
them.
"""

TABLE = """
alter.config.policy.class.name | CLASS
    Java class that may refuse changes of settings.
authorizer.class.name | STRING
  =
    Java class that decides who may do what.
connection.failed.authentication.delay.ms | INT | 0..
  = 100
    Wait before a connection that failed to authenticate is closed.
connections.max.reauth.ms | LONG
  = 0
    Longest that an authenticated connection lasts before it must authenticate again.
create.topic.policy.class.name | CLASS
    Java class that may refuse new topics.
delegation.token.expiry.check.interval.ms | LONG | 1..
  = 3600000
    How often expired delegation tokens are removed.
delegation.token.expiry.time.ms | LONG | 1..
  = 86400000
    How long a delegation token lasts without renewal.
delegation.token.max.lifetime.ms | LONG | 1..
  = 604800000
    How long a delegation token lasts at most.
delegation.token.secret.key | PASSWORD
    Secret that signs delegation tokens.
early.start.listeners | LIST
    Listeners that open before the authorizer is ready.
principal.builder.class | CLASS | | broker
  = org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    Java class that names the user of a connection.
sasl.client.callback.handler.class | CLASS
    Java class that supplies credentials to the broker's own clients.
sasl.enabled.mechanisms | LIST | | broker
  = GSSAPI
    Ways to authenticate that are on offer.
sasl.jaas.config | PASSWORD | | broker
    Login settings in JAAS form.
sasl.kerberos.kinit.cmd | STRING | | broker
  = /usr/bin/kinit
    Path of the Kerberos ticket command.
sasl.kerberos.min.time.before.relogin | LONG | | broker
  = 60000
    Least time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules | LIST | | broker
  = DEFAULT
    Rules that turn Kerberos principals into user names.
sasl.kerberos.service.name | STRING | | broker
    Kerberos name of the broker.
sasl.kerberos.ticket.renew.jitter | DOUBLE | | broker
  = 0.05
    Share of the ticket renewal time that is left to chance.
sasl.kerberos.ticket.renew.window.factor | DOUBLE | | broker
  = 0.8
    Share of a ticket's life after which it is renewed.
sasl.login.callback.handler.class | CLASS
    Java class that supplies credentials at login.
sasl.login.class | CLASS
    Java class that logs in.
sasl.login.connect.timeout.ms | INT
    Longest wait for a connection to the identity provider.
sasl.login.read.timeout.ms | INT
    Longest wait for an answer of the identity provider.
sasl.login.refresh.buffer.seconds | SHORT | | broker
  = 300
    How long before its end a credential is renewed.
sasl.login.refresh.min.period.seconds | SHORT | | broker
  = 60
    Least time between two renewals of a credential.
sasl.login.refresh.window.factor | DOUBLE | | broker
  = 0.8
    Share of a credential's life after which it is renewed.
sasl.login.refresh.window.jitter | DOUBLE | | broker
  = 0.05
    Share of the renewal time that is left to chance.
sasl.login.retry.backoff.max.ms | LONG
  = 10000
    Longest wait between two tries to log in.
sasl.login.retry.backoff.ms | LONG
  = 100
    First wait between two tries to log in.
sasl.mechanism.controller.protocol | STRING
  = GSSAPI
    Way to authenticate to controllers.
sasl.mechanism.inter.broker.protocol | STRING | | broker
  = GSSAPI
    Way in which brokers authenticate to each other.
sasl.oauthbearer.assertion.algorithm | STRING | ~ES256,RS256
  = RS256
    Algorithm that signs the assertion sent to the identity provider.
sasl.oauthbearer.assertion.claim.aud | STRING
    Audience named in that assertion.
sasl.oauthbearer.assertion.claim.exp.seconds | INT | 0..86400
  = 300
    How long that assertion is valid.
sasl.oauthbearer.assertion.claim.iss | STRING
    Issuer named in that assertion.
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN
  = false
    Whether that assertion gets an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | 0..3600
  = 60
    How far back the validity of that assertion begins.
sasl.oauthbearer.assertion.claim.sub | STRING
    Subject named in that assertion.
sasl.oauthbearer.assertion.file | STRING
    File with a ready-made assertion.
sasl.oauthbearer.assertion.private.key.file | STRING
    File with the key that signs the assertion.
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD
    Passphrase of that key.
sasl.oauthbearer.assertion.template.file | STRING
    File with further claims of the assertion.
sasl.oauthbearer.client.credentials.client.id | STRING
    Client id at the identity provider.
sasl.oauthbearer.client.credentials.client.secret | PASSWORD
    Secret of that client id.
sasl.oauthbearer.clock.skew.seconds | INT
  = 30
    Difference of clocks that is forgiven when a token is checked.
sasl.oauthbearer.expected.audience | LIST
  =
    Audiences that a token may name.
sasl.oauthbearer.expected.issuer | STRING
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms | LONG
  = 3600000
    How often the provider's public keys are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | LONG
  = 10000
    Longest wait between two tries to fetch them.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | LONG
  = 100
    First wait between two tries to fetch them.
sasl.oauthbearer.jwks.endpoint.url | STRING
    Where the provider's public keys are.
sasl.oauthbearer.jwt.retriever.class | CLASS
  = org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    Java class that fetches tokens.
sasl.oauthbearer.jwt.validator.class | CLASS
  = org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    Java class that checks tokens.
sasl.oauthbearer.scope | STRING
    Scope that is asked for in a token.
sasl.oauthbearer.scope.claim.name | STRING
  = scope
    Claim in which a token names its scope.
sasl.oauthbearer.sub.claim.name | STRING
  = sub
    Claim in which a token names its subject.
sasl.oauthbearer.token.endpoint.url | STRING
    Where tokens are fetched.
sasl.server.callback.handler.class | CLASS
    Java class that checks credentials.
sasl.server.max.receive.size | INT
  = 524288
    Largest message while a connection authenticates.
security.inter.broker.protocol | STRING | PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL
  = PLAINTEXT
    Security protocol between brokers.
security.providers | STRING
    Java classes with security algorithms.
ssl.allow.dn.changes | BOOLEAN
  = false
    Whether a new certificate may have another distinguished name.
ssl.allow.san.changes | BOOLEAN
  = false
    Whether a new certificate may have other alternative names.
ssl.cipher.suites | LIST | | broker
  =
    Cipher suites that are allowed.
ssl.client.auth | STRING | required,requested,none | broker
  = none
    Whether clients must show a certificate.
ssl.enabled.protocols | LIST | | broker
  = TLSv1.2,TLSv1.3
    TLS versions that are allowed.
ssl.endpoint.identification.algorithm | STRING | | broker
  = https
    How a server's name is checked against its certificate.
ssl.engine.factory.class | CLASS | | broker
    Java class that makes TLS engines.
ssl.key.password | PASSWORD | | broker
    Password of the private key.
ssl.keymanager.algorithm | STRING | | broker
  = SunX509
    Algorithm of the Java key manager.
ssl.keystore.certificate.chain | PASSWORD | | broker
    Certificate chain of the broker.
ssl.keystore.key | PASSWORD | | broker
    Private key of the broker.
ssl.keystore.location | STRING | | broker
    File with the broker's key and certificate.
ssl.keystore.password | PASSWORD | | broker
    Password of that file.
ssl.keystore.type | STRING | | broker
  = JKS
    Format of that file.
ssl.principal.mapping.rules | STRING
  = DEFAULT
    Rules that turn certificate names into user names.
ssl.protocol | STRING | | broker
  = TLSv1.3
    TLS version to begin with.
ssl.provider | STRING | | broker
    Java security provider for TLS.
ssl.secure.random.implementation | STRING | | broker
    Java random generator for TLS.
ssl.trustmanager.algorithm | STRING | | broker
  = PKIX
    Algorithm of the Java trust manager.
ssl.truststore.certificates | PASSWORD | | broker
    Certificates that are trusted.
ssl.truststore.location | STRING | | broker
    File with the certificates that are trusted.
ssl.truststore.password | PASSWORD | | broker
    Password of that file.
ssl.truststore.type | STRING | | broker
  = JKS
    Format of that file.
"""
