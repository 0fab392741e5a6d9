// The identity's file: PEM with mode 0600, written atomically; and what can be wrong with it, in words that say what to do.
import Files

extension Identity {
    /// The largest file that is read.
    public static let fileByteCountMaximum = 65_536

    /// The identity stored at `path`; when there is none, a new one in the name of `commonName` is made and stored.
    ///
    /// The file appears whole or not at all, readable by its owner only, and an existing one is never replaced: of two
    /// processes that start at once, both get the same. The directory is made (mode 0700) when it is missing.
    ///
    /// - Parameter replacesDamaged: Whether what cannot be an identity is set aside, and a new one is made in its place.
    public static func loadOrCreate(
        at path: String, commonName: String, serverNames: [ServerName] = [], replacesDamaged: Bool = false
    ) throws(IdentityError) -> (identity: Identity, notices: [IdentityNotice]) {
        var notices: [IdentityNotice] = []
        do throws(IdentityError) {
            if let existing = try load(from: path) { return existing }
        } catch {
            guard replacesDamaged, case .corrupt(_, let reason) = error else { throw error }
            let aside = try attempt(IdentityError.file) { () throws(FileError) in try AtomicFile.setAside(path) }
            notices.append(.replaced(path: path, aside: aside, reason: reason))
        }
        let identity = try attempt(IdentityError.cryptography) { () throws(CryptographyError) in
            try Identity(generating: commonName, serverNames: serverNames)
        }
        guard try identity.store(at: path) else {
            // Another process was faster.
            guard let existing = try load(from: path) else { throw .file(FileError("read", path, .missing)) }
            return existing
        }
        return (identity, notices.isEmpty ? [.created(path: path)] : notices)
    }

    /// The identity stored at `path`, nil when there is no such file.
    public static func load(
        from path: String
    ) throws(IdentityError) -> (identity: Identity, notices: [IdentityNotice])? {
        let (bytes, facts): ([UInt8], FileFacts)
        do throws(FileError) {
            (bytes, facts) = try RegularFile.contents(of: path, byteCountMax: fileByteCountMaximum)
        } catch {
            if error.cause == .missing { return nil }
            guard error.isDamage else { throw .file(error) }
            throw .corrupt(path: path, reason: .unusable(reason: error.reason))
        }
        do throws(IdentityError) {
            let mode = facts.mode & 0o777
            let notices: [IdentityNotice] =
                mode & 0o077 == 0 ? [] : [.accessibleToOthers(path: path, mode: mode)]
            return (try Identity(pem: String(decoding: bytes, as: UTF8.self)), notices)
        } catch {
            throw .corrupt(path: path, reason: error)
        }
    }

    /// Stores the identity at `path`; false, without a change, when there is a file already.
    func store(at path: String) throws(IdentityError) -> Bool {
        try attempt(IdentityError.file) { () throws(FileError) in
            try AtomicFile.makeDirectory(AtomicFile.directory(of: path), mode: 0o700)
            return try AtomicFile.writeNew(
                Array(pem.utf8), to: path, unique: Hexadecimal.encode(SecureRandom.bytes(6)), isSecret: true)
        }
    }
}

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

/// What `body` makes, its failure being `meaning` of an identity.
func attempt<T, Failure: Error>(
    _ meaning: (Failure) -> IdentityError, _ body: () throws(Failure) -> T
) throws(IdentityError) -> T {
    do throws(Failure) { return try body() } catch { throw meaning(error) }
}
