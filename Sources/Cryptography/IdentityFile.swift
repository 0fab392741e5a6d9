// The identity's file: PEM with mode 0600, written atomically.
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
            let aside = try attempt { () throws(FileError) in try AtomicFile.setAside(path) }
            notices.append(.replaced(path: path, aside: aside, reason: reason))
        }
        let identity: Identity
        do throws(CryptographyError) {
            identity = try Identity(generating: commonName, serverNames: serverNames)
        } catch {
            throw .cryptography(error)
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
        try Self.attempt { () throws(FileError) in
            try AtomicFile.makeDirectory(AtomicFile.directory(of: path), mode: 0o700)
            return try AtomicFile.writeNew(
                Array(pem.utf8), to: path, unique: Hexadecimal.encode(SecureRandom.bytes(6)), isSecret: true)
        }
    }

    private static func attempt<T>(_ body: () throws(FileError) -> T) throws(IdentityError) -> T {
        do throws(FileError) { return try body() } catch { throw .file(error) }
    }
}
