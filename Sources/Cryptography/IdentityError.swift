// What can be wrong with the identity's file, in words that say what to do.

/// Why an identity could not be read, made or stored.
public enum IdentityError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The PEM text has no readable certificate.
    case noCertificate(CryptographyError)
    /// The PEM text has no readable private key.
    case noPrivateKey(CryptographyError)
    /// Certificate and private key belong to different keys.
    case keyDoesNotMatch
    /// A system call on the file failed.
    case file(path: String, operation: String, errno: Int32, text: String)
    /// The file is there, but what is in it is wrong.
    indirect case corrupt(path: String, reason: IdentityError)
    /// The file is larger than any identity.
    case tooLarge(byteCountMaximum: Int)
    /// GnuTLS failed.
    case cryptography(CryptographyError)

    /// A sentence for people.
    public var description: String {
        switch self {
        case .noCertificate(let error): "no readable certificate (\(error))"
        case .noPrivateKey(let error): "no readable private key (\(error))"
        case .keyDoesNotMatch: "the private key does not belong to the certificate"
        case .file(let path, let operation, _, let text):
            "cannot \(operation) the identity \(path): \(text); make its directory accessible to this user"
        case .corrupt(let path, let reason):
            "the identity \(path) is damaged: \(reason); restore it from a backup, or move it away: "
                + "a new identity is then made, and who pinned the old one must be given a new invitation"
        case .tooLarge(let limit): "more than \(limit) bytes are no identity"
        case .cryptography(let error): error.description
        }
    }
}

/// What a start should log about the identity's file.
public enum IdentityNotice: Hashable, Sendable, CustomStringConvertible {
    /// There was none, so it was made.
    case created(path: String)
    /// Others than the owner can read or change it.
    case accessibleToOthers(path: String, mode: UInt32)

    /// A line for the log.
    public var description: String {
        switch self {
        case .created(let path): "made a new identity: \(path)"
        case .accessibleToOthers(let path, let mode):
            "others can read or change the private key \(path) (mode 0\(String(mode, radix: 8))): run chmod 600 on it"
        }
    }
}
