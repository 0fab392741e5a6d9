// What can be wrong with the identity's file, in words that say what to do.
import Files

/// Why an identity could not be read, made or stored.
public enum IdentityError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The PEM text has no readable certificate.
    case noCertificate(CryptographyError)
    /// The PEM text has no readable private key.
    case noPrivateKey(CryptographyError)
    /// Certificate and private key belong to different keys.
    case keyDoesNotMatch
    /// The file cannot be read or written.
    case file(FileError)
    /// The file is there, but what is in it is wrong.
    indirect case corrupt(path: String, reason: IdentityError)
    /// What is there cannot be an identity's file: no regular file, or too large.
    case unusable(reason: String)
    /// GnuTLS failed.
    case cryptography(CryptographyError)

    /// Whether the same may succeed later although nobody mends anything: see `FileError.mayPass`.
    public var mayPass: Bool {
        if case .file(let error) = self { return error.mayPass }
        return false
    }

    /// A sentence for people.
    public var description: String {
        switch self {
        case .noCertificate(let error): "no readable certificate (\(error))"
        case .noPrivateKey(let error): "no readable private key (\(error))"
        case .keyDoesNotMatch: "the private key does not belong to the certificate"
        case .file(let error): error.description
        case .corrupt(let path, let reason):
            "the identity \(path) is damaged: \(reason); restore it from a backup"
        case .unusable(let reason): reason
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
    /// It was damaged, and a new one was made in its place.
    case replaced(path: String, aside: String, reason: IdentityError)

    /// A line for the log.
    public var description: String {
        switch self {
        case .created(let path): "made a new identity: \(path)"
        case .accessibleToOthers(let path, let mode):
            "others can read or change the private key \(path) (mode 0\(String(mode, radix: 8))): run chmod 600 on it"
        case .replaced(let path, let aside, let reason):
            "\(path) was damaged (\(reason)) and is kept as \(aside); a new key was made in its place"
        }
    }
}
