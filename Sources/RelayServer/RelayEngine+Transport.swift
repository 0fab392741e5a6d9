// How a relay sets its QUIC port up.
import Cryptography
import QUIC
import RelayProtocol

extension RelayEngine {
    /// How the transport is set up for a relay.
    static func transport(_ configuration: RelayServerConfiguration) -> QUICConfiguration {
        var server = QUICServerOptions(keys: configuration.transportKeys.keys)
        server.maximumConnections = configuration.limits.connections + configuration.limits.connections / 8
        server.maximumConnectionsPerAddress = configuration.limits.connectionsPerAddress
        server.handshakesPerSecond = configuration.limits.handshakesPerSecond
        var transport = QUICConfiguration(
            applicationProtocol: RelayProtocolLimits.applicationProtocol,
            identity: QUICIdentity(
                certificate: configuration.identity.certificateDER, privateKey: configuration.identity.privateKeyDER,
                encoding: .der),
            server: server)
        transport.maximumPeerStreams = 1
        return transport
    }
}
