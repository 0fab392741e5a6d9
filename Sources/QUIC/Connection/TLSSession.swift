// TLS 1.3 as GnuTLS does it on behalf of the QUIC library: one connection's handshake, and what all connections of an endpoint share.
import CGnuTLS
import CLinux
import CNgtcp2

/// Owns a `gnutls_session_t` that is wired to an `ngtcp2_conn`.
final class TLSSession {
    let handle: gnutls_session_t
    private var antiReplay: gnutls_anti_replay_t?
    /// The peer's certificate that was looked at last, and the hash of its key.
    private var known: (certificate: [UInt8], keyHash: [UInt8])?

    /// A server's side; tickets are sealed with `keys`.
    static func server(of connection: QUICConnection, _ options: QUICServerOptions) throws(QUICError) -> TLSSession {
        var flags = GNUTLS_SERVER.rawValue | GNUTLS_NO_AUTO_SEND_TICKET.rawValue
        flags |= GNUTLS_NO_END_OF_EARLY_DATA.rawValue
        if options.acceptsEarlyData { flags |= GNUTLS_ENABLE_EARLY_DATA.rawValue }
        let session = try TLSSession(connection, flags: flags)
        let status = TLSCredentials.withDatum(options.keys.ticketKey) {
            gnutls_session_ticket_enable_server(session.handle, $0)
        }
        guard status == 0 else { throw QUICError.gnutls("gnutls_session_ticket_enable_server", status) }
        if options.acceptsEarlyData {
            // QUIC bounds early data by flow control; RFC 9001, section 4.6.1 wants this value.
            gnutls_record_set_max_early_data_size(session.handle, Int(UInt32.max))
            session.antiReplay = connection.endpoint.group.replayGuard.makeContext()
            if let context = session.antiReplay { gnutls_anti_replay_enable(session.handle, context) }
        }
        gnutls_certificate_server_set_request(session.handle, GNUTLS_CERT_REQUIRE)
        gnutls_certificate_send_x509_rdn_sequence(session.handle, 1)
        gnutls_handshake_set_hook_function(
            session.handle, GNUTLS_HANDSHAKE_CLIENT_HELLO.rawValue, Int32(GNUTLS_HOOK_POST)
        ) { session, _, _, _, _ in
            // "Mandatory" below lets a client through that names no protocol at all.
            guard let session else { return GNUTLS_E_INTERNAL_ERROR }
            return TLSSession.hasApplicationProtocol(session) ? 0 : GNUTLS_E_NO_APPLICATION_PROTOCOL
        }
        return session
    }

    /// A client's side; tickets that come are given to the connection.
    static func client(of connection: QUICConnection, _ options: QUICClientOptions) throws(QUICError) -> TLSSession {
        let flags =
            GNUTLS_CLIENT.rawValue | GNUTLS_ENABLE_EARLY_DATA.rawValue | GNUTLS_NO_END_OF_EARLY_DATA.rawValue
            | GNUTLS_FORCE_CLIENT_CERT.rawValue
        let session = try TLSSession(connection, flags: flags)
        gnutls_handshake_set_hook_function(
            session.handle, GNUTLS_HANDSHAKE_NEW_SESSION_TICKET.rawValue, Int32(GNUTLS_HOOK_POST)
        ) { session, _, _, incoming, _ in
            if let session, incoming != 0 { QUICConnection.of(session)?.ticketArrived() }
            return 0
        }
        if let name = options.serverName {
            let status = gnutls_server_name_set(session.handle, GNUTLS_NAME_DNS, name, name.utf8.count)
            guard status == 0 else { throw QUICError.gnutls("gnutls_server_name_set", status) }
        }
        return session
    }

    /// - Parameter connection: GnuTLS's callbacks are led to it; it outlives the session.
    private init(_ connection: QUICConnection, flags: UInt32) throws(QUICError) {
        let priorities = try TLSCredentials.priorities.get()
        var handle: gnutls_session_t?
        var status = gnutls_init(&handle, flags)
        guard status == 0, let handle else { throw QUICError.gnutls("gnutls_init", status) }
        self.handle = handle
        status = gnutls_priority_set(handle, priorities.handle)
        guard status == 0 else { throw QUICError.gnutls("gnutls_priority_set", status) }
        status = gnutls_credentials_set(
            handle, GNUTLS_CRD_CERTIFICATE, UnsafeMutableRawPointer(connection.endpoint.credentials.handle))
        guard status == 0 else { throw QUICError.gnutls("gnutls_credentials_set", status) }
        status = TLSCredentials.withDatum(Array(connection.endpoint.configuration.applicationProtocol.utf8)) {
            gnutls_alpn_set_protocols(handle, $0, 1, GNUTLS_ALPN_MANDATORY.rawValue)
        }
        guard status == 0 else { throw QUICError.gnutls("gnutls_alpn_set_protocols", status) }
        let configured =
            flags & GNUTLS_SERVER.rawValue != 0
            ? ngtcp2_crypto_gnutls_configure_server_session(handle)
            : ngtcp2_crypto_gnutls_configure_client_session(handle)
        guard configured == 0 else {
            throw QUICError.library(call: "ngtcp2_crypto_gnutls_configure_session", reason: "refused")
        }
        gnutls_session_set_ptr(handle, connection.reference)
    }

    deinit {
        gnutls_deinit(handle)
        if let antiReplay { gnutls_anti_replay_deinit(antiReplay) }
    }

    /// Whether the sides have agreed on this side's protocol.
    static func hasApplicationProtocol(_ session: gnutls_session_t) -> Bool {
        var selected = gnutls_datum_t()
        return gnutls_alpn_get_selected_protocol(session, &selected) == 0 && selected.size > 0
    }

    var hasApplicationProtocol: Bool { Self.hasApplicationProtocol(handle) }

    /// The SHA-256 of the SubjectPublicKeyInfo of the peer's certificate, or nil when it showed none (yet). Asked several times in a
    /// handshake; to take a certificate apart costs a fifth of a resumed one, so it is done once.
    var peerKeyHash: [UInt8]? {
        var count: UInt32 = 0
        guard gnutls_certificate_type_get(handle) == GNUTLS_CRT_X509,
            let list = gnutls_certificate_get_peers(handle, &count), count > 0
        else { return nil }
        let certificate = UnsafeBufferPointer(start: list.pointee.data, count: Int(list.pointee.size))
        if let known, known.certificate.elementsEqual(certificate) { return known.keyHash }
        guard let hash = TLSCredentials.publicKeyHash(certificate: list, encoding: GNUTLS_X509_FMT_DER) else {
            return nil
        }
        known = (Array(certificate), hash)
        return hash
    }

    /// A client: whether the server took the early data.
    var earlyDataAccepted: Bool { gnutls_session_get_flags(handle) & GNUTLS_SFLAGS_EARLY_DATA.rawValue != 0 }

    /// A client: takes up an earlier session; false when its data is damaged, and the handshake is a full one then.
    func resume(_ data: [UInt8]) -> Bool {
        data.withUnsafeBytes { gnutls_session_set_data(handle, $0.baseAddress, $0.count) == 0 }
    }

    /// A client: the session's data once a ticket has come.
    var resumptionData: [UInt8]? {
        var data = gnutls_datum_t()
        guard gnutls_session_get_data2(handle, &data) == 0, let bytes = data.data else { return nil }
        defer { ptt_gnutls_free(bytes) }
        return Array(UnsafeBufferPointer(start: bytes, count: Int(data.size)))
    }

    /// A server: gives the client a ticket.
    func sendTicket() -> Bool { gnutls_session_ticket_send(handle, 1, 0) == 0 }
}

/// An endpoint's certificate and key in GnuTLS's form. Also set up, without a certificate, for clients that have none.
final class TLSCredentials {
    let handle: gnutls_certificate_credentials_t

    /// TLS 1.3 only; the three cipher suites that RFC 9001 asks for.
    static let priorities: Result<Priorities, QUICError> = {
        var handle: gnutls_priority_t?
        let text =
            "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305"
            + ":-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%DISABLE_TLS13_COMPAT_MODE"
        let status = gnutls_priority_init(&handle, text, nil)
        guard status == 0, let handle else { return .failure(.gnutls("gnutls_priority_init", status)) }
        return .success(Priorities(handle: handle))
    }()

    /// Never changed after it was made, so it may be shared by threads (GnuTLS manual, "Thread safety").
    struct Priorities: @unchecked Sendable {
        let handle: gnutls_priority_t
    }

    init(identity: QUICIdentity?) throws(QUICError) {
        var handle: gnutls_certificate_credentials_t?
        let status = gnutls_certificate_allocate_credentials(&handle)
        guard status == 0, let handle else {
            throw QUICError.gnutls("gnutls_certificate_allocate_credentials", status)
        }
        self.handle = handle
        if let identity {
            let status = Self.withDatum(identity.certificate) { certificate in
                Self.withDatum(identity.privateKey) { key in
                    gnutls_certificate_set_x509_key_mem(
                        handle, certificate, key,
                        identity.encoding == .pem ? GNUTLS_X509_FMT_PEM : GNUTLS_X509_FMT_DER)
                }
            }
            guard status >= 0 else {
                throw QUICError.unusableIdentity(reason: String(cString: gnutls_strerror(status)))
            }
        }
        gnutls_certificate_set_verify_function(handle) { session in
            guard let session, let connection = QUICConnection.of(session) else { return -1 }
            return connection.verifyPeer() ? 0 : -1
        }
    }

    deinit { gnutls_certificate_free_credentials(handle) }

    static func publicKeyHash(
        certificate: UnsafePointer<gnutls_datum_t>, encoding: gnutls_x509_crt_fmt_t
    ) -> [UInt8]? {
        var key: gnutls_pubkey_t?
        guard gnutls_pubkey_init(&key) == 0, let key else { return nil }
        defer { gnutls_pubkey_deinit(key) }
        guard gnutls_pubkey_import_x509_raw(key, certificate, encoding, 0) == 0 else { return nil }
        var info = gnutls_datum_t()
        guard gnutls_pubkey_export2(key, GNUTLS_X509_FMT_DER, &info) == 0 else { return nil }
        defer { ptt_gnutls_free(info.data) }
        var hash = [UInt8](repeating: 0, count: 32)
        guard gnutls_hash_fast(GNUTLS_DIG_SHA256, info.data, Int(info.size), &hash) == 0 else { return nil }
        return hash
    }

    /// The bytes as GnuTLS takes them; it does not write there.
    static func withDatum<T>(_ bytes: [UInt8], _ body: (UnsafePointer<gnutls_datum_t>) -> T) -> T {
        bytes.withUnsafeBufferPointer { buffer in
            var datum = gnutls_datum_t(
                data: UnsafeMutablePointer(mutating: buffer.baseAddress), size: UInt32(buffer.count))
            return body(&datum)
        }
    }
}

extension QUICIdentity {
    /// The SHA-256 of the certificate's SubjectPublicKeyInfo: what peers pin. Nil when there is no readable
    /// certificate.
    public var keySHA256: [UInt8]? {
        TLSCredentials.withDatum(certificate) {
            TLSCredentials.publicKeyHash(
                certificate: $0, encoding: encoding == .pem ? GNUTLS_X509_FMT_PEM : GNUTLS_X509_FMT_DER)
        }
    }
}

extension QUICError {
    static func gnutls(_ call: String, _ status: Int32) -> QUICError {
        .library(call: call, reason: String(cString: gnutls_strerror(status)))
    }
}
